# A freshly installed workstation: systemd, sshd, sudo, iptables. No container engine, no driver.
ARG FROM
FROM ${FROM}
RUN set -eu; export DEBIAN_FRONTEND=noninteractive; \
    apt-get update; \
    apt-get install -y --no-install-recommends \
      curl iproute2 iptables kmod openssh-server procps sudo systemd systemd-sysv; \
    apt-get clean; rm -rf /var/lib/apt/lists/*; \
    systemctl mask console-getty.service getty.target systemd-logind.service systemd-remount-fs.service \
      systemd-firstboot.service systemd-networkd-wait-online.service; \
    systemctl disable apt-daily.timer apt-daily-upgrade.timer || true; \
    systemctl enable ssh.service; \
    : >/etc/machine-id
COPY boot /usr/local/sbin/boot
# What systemd takes for "halt" when it is PID 1 of a container.
STOPSIGNAL SIGRTMIN+3
ENV container=docker
CMD ["/usr/local/sbin/boot"]

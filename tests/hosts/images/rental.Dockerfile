# A rented container: root over SSH, and what images for model servers bring. No systemd, no Docker, no iptables.
ARG FROM
FROM ${FROM}
# systemd-standalone-sysusers: what sshd's package would otherwise take from systemd.
RUN set -eu; export DEBIAN_FRONTEND=noninteractive; \
    apt-get update; \
    apt-get install -y --no-install-recommends openssh-server procps python3-venv systemd-standalone-sysusers; \
    mkdir -p /run/sshd /workspace; \
    apt-get clean; rm -rf /var/lib/apt/lists/*
COPY hold-sshd /usr/local/sbin/hold-sshd
STOPSIGNAL SIGTERM
CMD ["/usr/local/sbin/hold-sshd"]

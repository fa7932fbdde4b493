# A machine beside the boxes: it asks them, over both IP families, what they show to the outside.
ARG FROM
FROM ${FROM}
# systemd-standalone-sysusers: what sshd's package would otherwise take from systemd.
RUN set -eu; export DEBIAN_FRONTEND=noninteractive; \
    apt-get update; \
    apt-get install -y --no-install-recommends curl iproute2 iputils-ping openssh-server systemd-standalone-sysusers; \
    mkdir -p /run/sshd; \
    apt-get clean; rm -rf /var/lib/apt/lists/*
COPY hold-sshd /usr/local/sbin/hold-sshd
STOPSIGNAL SIGTERM
CMD ["/usr/local/sbin/hold-sshd"]

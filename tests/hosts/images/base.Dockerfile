# What every test host and the engine's image stand on: Debian as this machine reaches it, with a Python.
ARG FROM
FROM ${FROM}
COPY machine/ /
# The archive comes from the machine's files where it has them: debootstrap's own line would name it twice.
RUN set -eu; export DEBIAN_FRONTEND=noninteractive; \
    if [ -e /etc/apt/sources.list.d/debian.sources ]; then rm -f /etc/apt/sources.list; fi; \
    printf 'path-exclude /usr/share/doc/*\npath-exclude /usr/share/man/*\npath-exclude /usr/share/locale/*\n' \
      >/etc/dpkg/dpkg.cfg.d/01-small; \
    printf 'force-unsafe-io\n' >/etc/dpkg/dpkg.cfg.d/02-quick; \
    apt-get update; \
    apt-get install -y --no-install-recommends ca-certificates python3; \
    update-ca-certificates; \
    apt-get clean; rm -rf /var/lib/apt/lists/* /var/cache/apt/*.bin /usr/share/doc/* /usr/share/man/* /usr/share/locale/*

# A workstation whose owner has installed the distribution's own container engine. It starts with the box.
ARG FROM
FROM ${FROM}
# The command line is a package of its own from Debian 13 on.
RUN set -eu; export DEBIAN_FRONTEND=noninteractive; \
    apt-get update; \
    apt-get install -y --no-install-recommends docker.io docker-compose $(apt-cache pkgnames docker-cli | grep -x docker-cli); \
    apt-get clean; rm -rf /var/lib/apt/lists/*; \
    systemctl enable docker.service

# A registry of images over plain HTTP: a bare workstation pulls its engine from it, as it would from the makers' own.
ARG FROM
FROM ${FROM}
RUN set -eu; export DEBIAN_FRONTEND=noninteractive; \
    apt-get update; \
    apt-get install -y --no-install-recommends docker-registry; \
    apt-get clean; rm -rf /var/lib/apt/lists/*
COPY hold-registry /usr/local/sbin/hold-registry
EXPOSE 5000
CMD ["/usr/local/sbin/hold-registry"]

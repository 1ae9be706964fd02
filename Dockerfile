# Citehound in a container: not root, and nothing to write to but its state. How to run it: docs/deploy.md.
# The lock of the development environment pins what is installed.

FROM python:3.12-slim-bookworm AS build
ARG EXTRAS=anthropic,openai,google,mcp,otel
WORKDIR /build
RUN python -m venv /opt/citehound
COPY requirements/dev.txt requirements/dev.txt
COPY pyproject.toml README.md LICENSE ./
COPY src src
RUN /opt/citehound/bin/pip install --no-cache-dir --constraint requirements/dev.txt ".[${EXTRAS}]"

FROM python:3.12-slim-bookworm
LABEL org.opencontainers.image.title="Citehound" \
      org.opencontainers.image.description="Answers from your documents, with every quote checked and every gap said" \
      org.opencontainers.image.licenses="MIT"
RUN groupadd --gid 10001 citehound \
    && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /tmp --shell /usr/sbin/nologin citehound \
    && install --directory --owner=citehound --group=citehound --mode=0700 /srv/citehound/.citehound
COPY --from=build /opt/citehound /opt/citehound
ENV PATH="/opt/citehound/bin:$PATH" \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    CITEHOUND_CONFIG=/srv/citehound/citehound.toml
WORKDIR /srv/citehound
USER 10001:10001
VOLUME ["/srv/citehound/.citehound"]
EXPOSE 8765
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python", "-c", "import urllib.request as u; u.build_opener(u.ProxyHandler({})).open('http://127.0.0.1:8765/healthz', timeout=4)"]
ENTRYPOINT ["citehound"]
CMD ["serve", "--host", "0.0.0.0", "--port", "8765"]

# syntax=docker/dockerfile:1
# GPU: docker build -t playhead .
# CPU: docker build -t playhead:cpu --build-arg BASE=debian:bookworm-slim --build-arg TORCH_INDEX=URL .
#      where URL is an index with CPU builds of torch; without it the CUDA build comes along unused.
# Of CUDA the base brings only what the driver's container hook asks for: torch carries the rest.
ARG BASE=nvidia/cuda:13.0.2-base-ubuntu24.04

FROM ghcr.io/astral-sh/uv:0.9.7 AS uv

FROM ${BASE} AS build
ARG TORCH_INDEX=
COPY --from=uv /uv /usr/local/bin/uv
WORKDIR /src
# The root may be read-only: compiled modules come with it.
ENV UV_COMPILE_BYTECODE=1
COPY . .
RUN --mount=type=cache,target=/root/.cache/uv UV_LINK_MODE=copy deploy/install.sh build

FROM ${BASE}
ARG TORCH_INDEX=
COPY deploy/install.sh /tmp/install.sh
RUN /tmp/install.sh runtime && rm /tmp/install.sh
COPY --from=build /opt/playhead /opt/playhead
USER 10001:10001
# Everything that is written goes to /cache (weights, compiled kernels, sockets): the root may be
# read-only. HF_TOKEN lets private checkpoints in; HF_HUB_OFFLINE=1 takes only what /cache holds.
VOLUME /cache
ENV PATH=/opt/playhead/bin:$PATH PYTHONSAFEPATH=1 PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 \
    HOME=/cache TMPDIR=/cache HF_HOME=/cache/huggingface TRITON_CACHE_DIR=/cache/triton \
    PLAYHEAD_PROFILE=cpu PLAYHEAD_LOG_FORMAT=json HEALTH=http://127.0.0.1:8081/health
HEALTHCHECK --interval=10s --timeout=5s --start-period=120s \
    CMD ["python", "-c", "import os, urllib.request as u; u.urlopen(os.environ['HEALTH'], timeout=4)"]
EXPOSE 8081
# LIVEKIT_URL, LIVEKIT_API_KEY and LIVEKIT_API_SECRET say which server to register with.
ENTRYPOINT ["playhead"]
CMD ["worker", "--host", "0.0.0.0", "--port", "8081"]

# A worker with the embedded voice on the CPU. Build: docker build -t playhead .
FROM python:3.12-slim AS build
WORKDIR /src
COPY . .
RUN python -m venv /opt/playhead \
    && /opt/playhead/bin/pip install --no-cache-dir --no-deps --require-hashes -r requirements/engine.txt \
    && /opt/playhead/bin/pip install --no-cache-dir "setuptools>=77,<82" \
    && /opt/playhead/bin/pip install --no-cache-dir --no-deps --no-build-isolation .

FROM python:3.12-slim
RUN useradd --uid 10001 --create-home appuser
COPY --from=build /opt/playhead /opt/playhead
USER appuser
ENV PATH=/opt/playhead/bin:$PATH PYTHONSAFEPATH=1 PYTHONUNBUFFERED=1
# LIVEKIT_URL, LIVEKIT_API_KEY and LIVEKIT_API_SECRET say which server to register with.
ENTRYPOINT ["playhead"]
CMD ["worker"]

# The images of docker-compose.yml; docs/team.md. They have not been built where this file was written: there was no Docker.

# Treering with what ships, mirrors and shows runs, and the MLflow server; nothing that trains.
FROM python:3.12.11-slim-bookworm AS treering
ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
COPY pyproject.toml constraints.txt README.md LICENSE /source/
COPY platform /source/platform
COPY trainer /source/trainer
COPY dashboard /source/dashboard
RUN pip install -c /source/constraints.txt '/source[registry,ledger,dashboard,attestation,team]' \
    && rm -r /source \
    && useradd --uid 10001 --create-home treering \
    && install -d -o treering -g treering /mirror /mlflow
USER 10001:10001

# An S3 server over a folder: JuiceFS's gateway. Any other S3 service does as well: AWS_ENDPOINT_URL and its keys name it.
FROM juicedata/mount:ce-v1.3.1 AS store
RUN useradd --uid 10001 --create-home treering && install -d -o treering -g treering /store
USER 10001:10001
ENTRYPOINT []

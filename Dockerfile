# An image that serves model directories and models of the Hugging Face hub. docs/how_to/deployment.md has its use.
#   docker build --tag lmi-handlers .
#   docker run --publish 8080:8080 --volume "$PWD/examples/hello:/opt/ml/model:ro" lmi-handlers

ARG PYTHON=3.11

FROM python:${PYTHON}-slim-bookworm AS build
# What else to install: "[s3]", or for GPUs "[vllm,s3]".
ARG EXTRAS=""
# The versions that this project is tested with. vLLM for GPUs asks for others: give /dev/null with it.
ARG CONSTRAINTS=constraints.txt
# The index of PyTorch for CPUs alone makes a much smaller image: https://download.pytorch.org/whl/cpu
ARG PIP_EXTRA_INDEX_URL=""
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /source
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY core core
COPY handlers handlers
COPY plugins plugins
RUN python -m venv /opt/lmi && /opt/lmi/bin/pip install --constraint "${CONSTRAINTS}" ".${EXTRAS}"

FROM python:${PYTHON}-slim-bookworm
# Packages of the system: vLLM on GPUs compiles kernels when it starts, with "gcc libc6-dev".
ARG PACKAGES=""
# hadolint ignore=SC2086
RUN if [ -n "${PACKAGES}" ]; then \
        apt-get update && apt-get install --yes --no-install-recommends ${PACKAGES} && rm -rf /var/lib/apt/lists/*; \
    fi \
    && useradd --uid 1000 --create-home lmi \
    && install --directory --owner=lmi /opt/ml/model /cache
COPY --from=build /opt/lmi /opt/lmi
# Models of the hub and from S3 are copied to /cache: mount a volume there to keep them.
ENV PATH=/opt/lmi/bin:${PATH} \
    HF_HOME=/cache/huggingface \
    LMI_CACHE=/cache/lmi \
    SERVING_INFERENCE_ADDRESS=http://0.0.0.0:8080
LABEL com.amazonaws.sagemaker.capabilities.accept-bind-to-port=true
USER 1000:1000
WORKDIR /home/lmi
EXPOSE 8080
STOPSIGNAL SIGTERM
# Loading takes as long as the model is large; until it is done, failures do not count.
HEALTHCHECK --interval=10s --timeout=5s --start-period=30m --retries=3 \
    CMD ["python", "-c", "import os, urllib.request as http; http.urlopen(f\"http://127.0.0.1:{os.environ.get('SAGEMAKER_BIND_TO_PORT', 8080)}/readiness\")"]
# lmi itself is process 1, which gets the signals: `docker stop --time 40` leaves requests their 30 seconds.
ENTRYPOINT ["lmi"]
CMD ["serve"]

#!/bin/bash
#SBATCH --job-name=murmur
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=4
#SBATCH --time=12:00:00
#SBATCH --requeue
#SBATCH --output=%x-%j.log
# One run on several machines, one process per GPU; for recipes whose members exchange something in every step.
#
#   sbatch examples/slurm_torchrun.sh DATA --out RUN [options of murmur train]
set -euo pipefail

head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
srun torchrun \
    --nnodes "$SLURM_NNODES" \
    --nproc-per-node "${SLURM_GPUS_ON_NODE:-4}" \
    --rdzv-id "$SLURM_JOB_ID" \
    --rdzv-backend c10d \
    --rdzv-endpoint "$head:29500" \
    -m murmuration train "$@" --device cuda

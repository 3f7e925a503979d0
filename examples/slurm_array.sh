#!/bin/bash
#SBATCH --job-name=murmur-member
#SBATCH --cpus-per-task=2
#SBATCH --time=04:00:00
#SBATCH --output=%x-%A-%a.log
# One ensemble member per task of an array job; the number of the task is the number of the member.
#
#   sbatch --array=0-9 examples/slurm_array.sh DATA FOLDER [options of murmur train]
#   murmur merge FOLDER/member-* --out RUN      when all tasks have ended
#
# A task that was killed is submitted again with the same line: it resumes its run.
set -euo pipefail

data=$1 folder=$2
shift 2
run=$folder/$(printf "member-%04d" "$SLURM_ARRAY_TASK_ID")
murmur=${MURMUR:-murmur}

if [ -e "$run/run.json" ]; then
    $murmur resume "$run"
else
    $murmur train "$data" --members 1 --first-member "$SLURM_ARRAY_TASK_ID" --out "$run" "$@"
fi

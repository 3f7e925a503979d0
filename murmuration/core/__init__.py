"""Members as tensors, the four questions, one training step, the engines that run it; no files, data sets or epochs."""

"""Keywords of other libraries, and what to write here instead. The command line reads them without torch."""

ADVICE = {  # what to write -> the names that it has elsewhere
    "lr=...": "learning_rate",
    "members=...": "n_estimators num_members",
    "epochs=...": "n_epochs num_epochs max_epochs max_iter",
    "batch_size=...": "bs",
    "seed=...": "random_state random_seed",
    "likelihood=mm.Categorical(K, class_weight='balanced') for K classes": "class_weight",
    "weight=...": "sample_weight",
    "likelihood=..., see murmur list losses": "loss loss_fn criterion objective",
    "optimizer=..., see murmur list optimizers": "optim optimiser solver",
    "schedule=..., see murmur list schedules": "scheduler lr_scheduler",
    "recipe=..., see murmur list recipes": "method strategy algorithm",
    "net=..., see murmur list nets": "model module network estimator architecture",
    "callback=f, called with each epoch's record": "callbacks logger loggers on_epoch_end hooks",
    "progress=True or progress=False": "verbose",
    "patience=..., such as patience=10": "early_stopping",
    "epochs=..., lr=... and device=... as keywords of fit": "trainer",
    "device=..., such as device='cuda'": "accelerator gpu gpus use_gpu cuda",
    "posthoc=mm.PostHocConfig(calibrate=..., conformal=...)": "calibrate calibration conformal",
    "posthoc=mm.PostHocConfig(coverage=...)": "coverage",
    "data=...": "train_loader train_dataloader train_data dataset",
    "val=..., such as val=0.15": "validation_split",
    "val=(x_val, y_val)": "validation_data eval_set",
    "val=...": "val_loader val_dataloader val_data",
}
FOREIGN = {name: advice for advice, names in ADVICE.items() for name in names.split()}

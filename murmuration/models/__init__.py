"""What produces outputs: networks by name, adapters for any module, pretrained features, scikit-learn estimators."""

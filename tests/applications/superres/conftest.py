from pathlib import Path

import pytest
from superres_factories import trained, write_photographs

from murmuration.prediction.ensemble import Ensemble


@pytest.fixture(scope="session")
def photo_folder(tmp_path_factory) -> Path:
    return write_photographs(tmp_path_factory.mktemp("photographs"))


@pytest.fixture(scope="session")
def upscaler(photo_folder: Path) -> Ensemble:
    """A network with Gaussian weights, trained for three steps."""
    return trained(photo_folder)

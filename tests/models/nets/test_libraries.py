"""Networks of timm and transformers by name: body and head, the scale of pixels, refusals in one line."""

import json
import sys
from types import ModuleType, SimpleNamespace

import pytest
import torch
from torch import Tensor, nn

from murmuration.cli.options import network
from murmuration.models.nets import build_net
from murmuration.models.nets.libraries import hf_config
from murmuration.models.nets.pretrained import pretrained_state
from murmuration.system.errors import Misuse

BERT = "hidden_size=8,num_hidden_layers=1,num_attention_heads=2,intermediate_size=16,vocab_size=12"


class Pooled(nn.Module):
    """What timm makes of num_classes=0: features (N, 6)."""

    num_features = 6

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, 6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(x).mean((2, 3))


@pytest.fixture
def stand_in(monkeypatch) -> list[dict]:
    """A module in the place of timm, with one network; the calls of create_model."""
    calls: list[dict] = []

    def create_model(name: str, **options):
        calls.append({"name": name, **options})
        return Pooled(options["in_chans"])

    values = {"mean": (0.5, 0.4, 0.3), "std": (0.2, 0.2, 0.1), "fixed_input_size": True}
    timm = ModuleType("timm")
    timm.__dict__.update(
        is_model=lambda name: name == "pooled",
        list_models=lambda: ["pooled"],
        get_pretrained_cfg_value=lambda name, key: values[key],
        create_model=create_model,
    )
    monkeypatch.setitem(sys.modules, "timm", timm)
    return calls


def test_a_network_of_timm_is_body_and_head(stand_in):
    net = build_net("timm:pooled", (3, 8, 10), 4)
    assert stand_in == [{"name": "pooled", "pretrained": False, "num_classes": 0, "in_chans": 3, "img_size": (8, 10)}]
    assert [name for name, _ in net.named_children()] == ["body", "head"]
    assert net(torch.zeros(2, 3, 8, 10)).shape == (2, 4)
    torch.testing.assert_close(torch.tensor(net.body.pixels.mean), torch.tensor([127.5, 102.0, 76.5]))
    assert not hasattr(build_net("timm:pooled", (1, 8, 10), 4).body, "pixels")  # its scale is of three colours


def test_a_file_of_timm_s_weights_fills_the_body(stand_in, tmp_path):
    from murmuration.system.files import write_tensors

    reference = Pooled(3)
    write_tensors(tmp_path / "net.safetensors", {**reference.state_dict(), "classifier.weight": torch.zeros(9, 6)})
    net = build_net("timm:pooled", (3, 8, 8), 4)
    state = pretrained_state("timm:pooled", net, tmp_path / "net.safetensors")
    assert torch.equal(state["body.net.conv.weight"], reference.conv.weight)
    assert torch.equal(state["head.weight"], net.head.weight)
    with pytest.raises(Misuse, match="its weights are not here; give a file"):
        pretrained_state("timm:pooled", net, True)


@pytest.mark.parametrize(
    ("name", "shape", "message"),
    [
        ("timm:poold", (3, 8, 8), "unknown net 'timm:poold': did you mean 'pooled'"),
        ("timm:pooled", (5,), r"takes images \(channels, height, width\), got \(5,\)"),
    ],
)
def test_refusals_of_timm(stand_in, name, shape, message):
    with pytest.raises(Misuse, match=message):
        build_net(name, shape, 3)
    with pytest.raises(Misuse, match="timm:pooled has no option 'dropout'"):
        build_net("timm:pooled", (3, 8, 8), 3, dropout=0.1)


@pytest.mark.parametrize(
    ("name", "module", "extra"), [("timm:resnet18", "timm", "timm"), ("hf:bert", "transformers", "hf")]
)
def test_a_missing_library_is_named_with_its_extra(monkeypatch, name, module, extra):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(Misuse, match=rf"needs {module}: pip install 'torch-murmuration\[{extra}\]'"):
        build_net(name, (3, 8, 8), 3)


def test_a_torchvision_of_another_build_is_named(monkeypatch):
    import importlib

    def broken(name: str):
        raise RuntimeError("operator torchvision::nms does not exist")

    monkeypatch.setattr(importlib, "import_module", broken)
    with pytest.raises(Misuse, match="install a torchvision that fits torch") as caught:
        build_net("timm:resnet18", (3, 8, 8), 3)
    assert "\n" not in str(caught.value)


def test_the_command_line_takes_their_names():
    assert network("timm:resnet18") == "timm:resnet18"
    assert network("hf:models/bert") == "hf:models/bert"


def usable(module: str) -> SimpleNamespace:
    """A library, or the reason why its tests do not run."""
    try:
        return __import__(module)
    except Exception as error:  # not installed, or a torchvision of another build
        pytest.skip(f"{module} cannot be imported: {error}")


@pytest.mark.parametrize("name", ["resnet10t", "vit_tiny_patch16_224", "mobilenetv3_small_050", "convnext_atto"])
def test_real_networks_of_timm(name):
    usable("timm")
    net = build_net(f"timm:{name}", (3, 32, 32), 5).eval()
    assert net(torch.zeros(2, 3, 32, 32)).shape == (2, 5)
    assert [child for child, _ in net.named_children()] == ["body", "head"]


@pytest.mark.parametrize(
    "kind", [f"bert:{BERT}", f"roberta:{BERT}", "distilbert:dim=8,n_layers=1,n_heads=2,vocab_size=12"]
)
def test_real_text_classifiers(kind):
    usable("transformers")
    net = build_net(f"hf:{kind}", (5,), 3).eval()
    tokens = torch.tensor([[5, 4, 3, 2, 6], [5, 4, 3, 1, 1]])
    assert net(tokens).shape == (2, 3)
    assert [child for child, _ in net.named_children()] == ["body", "head"]
    with pytest.raises(Misuse, match="takes tokens"):
        build_net(f"hf:{kind}", (3, 8, 8), 3)


def test_padding_is_masked():
    usable("transformers")
    net = build_net(f"hf:bert:{BERT},pad_token_id=0", (5,), 3).eval()
    with torch.no_grad():
        short, long = net(torch.tensor([[5, 4, 3]])), net(torch.tensor([[5, 4, 3, 0, 0]]))
    torch.testing.assert_close(short, long, rtol=1e-5, atol=1e-6)


def test_a_folder_gives_its_weights(tmp_path):
    transformers = usable("transformers")
    config = transformers.BertConfig(**{key: int(v) for key, v in (pair.split("=") for pair in BERT.split(","))})
    published = transformers.BertForSequenceClassification(config).eval()
    published.save_pretrained(tmp_path)
    name = f"hf:{tmp_path}"
    net = build_net(name, (5,), published.config.num_labels).eval()
    net.load_state_dict(pretrained_state(name, net, True))
    net.head.load_state_dict(published.classifier.state_dict())
    tokens = torch.tensor([[5, 4, 3, 2, 6]])
    with torch.no_grad():
        torch.testing.assert_close(net(tokens), published(tokens).logits)


def test_the_preprocessor_of_a_folder_states_the_scale_of_pixels(tmp_path):
    transformers = usable("transformers")
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    transformers.ViTConfig(**sizes, patch_size=4, image_size=8).save_pretrained(tmp_path)
    record = {"image_mean": [0.5, 0.5, 0.5], "image_std": [0.25, 0.25, 0.25]}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(record))
    net = build_net(f"hf:{tmp_path}", (3, 8, 8), 3)
    assert net(torch.zeros(2, 3, 8, 8)).shape == (2, 3)
    assert net.body.pixels.std == (63.75, 63.75, 63.75)


@pytest.mark.parametrize(
    ("name", "message"),
    [("hf:nosuch", "expected a folder with config.json"), ("hf:bert:hidden_size=x", "expected a setting and a number")],
)
def test_refusals_of_transformers(name, message):
    usable("transformers")
    with pytest.raises(Misuse, match=message):
        build_net(name, (5,), 3)


def test_code_in_a_folder_of_transformers_is_not_run(monkeypatch, tmp_path):
    calls = []

    def from_pretrained(name: str, **settings: object):
        calls.append(settings)
        raise ValueError("the configuration needs its own code")

    module = SimpleNamespace(AutoConfig=SimpleNamespace(from_pretrained=from_pretrained))
    monkeypatch.setitem(sys.modules, "transformers", module)
    with pytest.raises(Misuse, match=r"needs its own code; expected a folder with config.json"):
        hf_config(str(tmp_path))
    assert calls == [{"local_files_only": True, "trust_remote_code": False}]

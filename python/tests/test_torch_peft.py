"""LoRA by PEFT's own modules in a model of transformers: the steps are PyTorch's with PEFT, and adapters are saved as by PEFT."""

import json

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
peft = pytest.importorskip("peft")

import spillway  # noqa: E402
from test_torch import PLACEMENTS, by_pytorch, loaded, micro_batches, trained  # noqa: E402

ADAPTERS = ["adapter_config.json", "adapter_model.safetensors"]


@pytest.fixture(autouse=True)
def any_version(monkeypatch):
    # transformers 5.24 asks for a PEFT that was not out yet when this was written.
    monkeypatch.setattr("transformers.integrations.peft.check_peft_version", lambda **least: None)


def base():
    torch.manual_seed(0)
    config = transformers.LlamaConfig(vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=4,
                                      num_key_value_heads=2, max_position_embeddings=32)
    return transformers.LlamaForCausalLM(config).double()


def adapted(around, dropout=0.0):
    model = base()
    torch.manual_seed(1)
    config = peft.LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj", "down_proj"], init_lora_weights=False,
                             modules_to_save=["norm"] if around else None, lora_dropout=dropout, task_type="CAUSAL_LM")
    if around:
        return peft.get_peft_model(model, config).double()
    model.add_adapter(config)
    return model.double()


def texts():
    torch.manual_seed(2)
    ids = torch.randint(0, 64, (24, 16))
    return {"input_ids": ids, "labels": ids.clone()}


def loss(outputs, batch):
    """In fp64; transformers' own rounds logits to fp32."""
    return torch.nn.functional.cross_entropy(outputs.logits[:, :-1].flatten(0, 1), batch["labels"][:, 1:].flatten())


@pytest.mark.parametrize("placement", ["device", "nvme", "two stages"])
@pytest.mark.parametrize("around", [True, False], ids=["get_peft_model", "add_adapter"])
def test_adapters_train_and_are_saved_as_by_peft(around, placement, tmp_path):
    data, reference, model = texts(), adapted(around), adapted(around)
    expected = by_pytorch(reference, micro_batches(data), lambda m, batch: loss(m(**batch), batch))
    before = {name: value.clone() for name, value in model.named_parameters() if not value.requires_grad}
    result, _ = trained(tmp_path, model, data, loss, **PLACEMENTS[placement])
    assert result.losses == pytest.approx(expected, rel=1e-12)
    weights = loaded(result)
    assert before and all(torch.equal(weights[name], value) for name, value in before.items())
    spillway.torch.save_pretrained(result.checkpoint, tmp_path / "out", model)
    reference.save_pretrained(tmp_path / "right")
    assert sorted(one.name for one in (tmp_path / "out").iterdir()) == ADAPTERS
    out, right = (json.loads((tmp_path / folder / ADAPTERS[0]).read_text()) for folder in ("out", "right"))
    for config in (out, right):
        config["target_modules"] = sorted(config["target_modules"])  # PEFT keeps a set, which has no order
    assert out == right
    again = peft.PeftModel.from_pretrained(base(), tmp_path / "out")
    with torch.no_grad():
        got, right = again.eval()(data["input_ids"]).logits, reference.eval()(data["input_ids"]).logits
    torch.testing.assert_close(got, right, rtol=0, atol=1e-12)
    assert (right - base()(data["input_ids"]).logits).abs().max() > 1e-2


def test_dropout_of_adapters_gives_the_same_bits_everywhere(tmp_path):
    data, bits = texts(), {}
    for placement in ("device", "recomputed", "nvme", "zero 3", "two stages"):
        folder = tmp_path / placement
        folder.mkdir()
        result, bits[placement] = trained(folder, adapted(True, dropout=0.5), data, loss, steps=3, **PLACEMENTS[placement])
        losses = result.losses
    assert len(set(bits.values())) == 1, bits
    folder = tmp_path / "without"
    folder.mkdir()
    assert trained(folder, adapted(True), data, loss, steps=3)[0].losses != losses

"""Checkpoints as folders of transformers and PEFT, against their own save_pretrained() and from_pretrained(); these folders by ranges."""

import json
import os
import random
import struct
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")
tf = pytest.importorskip("transformers")
safetensors = pytest.importorskip("safetensors.torch")

from spillway.errors import DataError, DeviceError, UsageError
from spillway.torch import _safetensors, _save

tf.utils.logging.set_verbosity_error()
tf.utils.logging.disable_progress_bar()

SMALL = dict(vocab_size=99, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=64)
GROUPED = dict(**SMALL, num_key_value_heads=2, head_dim=8)
EXPERTS = dict(num_experts_per_tok=2, moe_intermediate_size=16)
LATENT = dict(q_lora_rank=16, kv_lora_rank=16, qk_rope_head_dim=8, qk_nope_head_dim=8, v_head_dim=8)
SEES = dict(hidden_size=32, intermediate_size=48, num_heads=4, depth=2, out_hidden_size=32, deepstack_visual_indexes=[0],
            num_position_embeddings=16)
CONFIGS = {
    "gpt2": lambda: tf.GPT2Config(vocab_size=99, n_embd=32, n_layer=2, n_head=4, n_positions=64),
    "llama": lambda: tf.LlamaConfig(**GROUPED, tie_word_embeddings=True),
    "gemma3": lambda: tf.Gemma3TextConfig(**GROUPED, sliding_window=8),
    "gemma4": lambda: tf.Gemma4TextConfig(
        **GROUPED, global_head_dim=16, num_kv_shared_layers=0, layer_types=["sliding_attention", "full_attention"], sliding_window=8,
        hidden_size_per_layer_input=8, vocab_size_per_layer_input=99),
    "gpt_oss": lambda: tf.GptOssConfig(**GROUPED, num_local_experts=4, num_experts_per_tok=2, sliding_window=8),
    "mixtral": lambda: tf.MixtralConfig(**GROUPED, num_local_experts=4),
    "qwen3_moe": lambda: tf.Qwen3MoeConfig(**GROUPED, **EXPERTS, num_experts=4, tie_word_embeddings=True),
    "deepseek_v3": lambda: tf.DeepseekV3Config(
        **SMALL, **EXPERTS, **LATENT, num_key_value_heads=4, n_routed_experts=8, n_group=2, topk_group=1, first_k_dense_replace=1),
    "qwen3_5": lambda: tf.Qwen3_5TextConfig(
        **GROUPED, linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=8, linear_value_head_dim=8),
    "llava": lambda: tf.LlavaConfig(
        text_config=tf.LlamaConfig(**GROUPED),
        vision_config=tf.CLIPVisionConfig(hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, image_size=8,
                                          patch_size=4, projection_dim=16)),
    "qwen3_vl_moe": lambda: tf.Qwen3VLMoeConfig(
        text_config=dict(**GROUPED, **EXPERTS, num_experts=4, rope_scaling=dict(rope_type="default", mrope_section=[2, 1, 1])),
        vision_config=SEES),
}


def made(config, meta=False, seed=0):
    if meta:
        with torch.device("meta"):
            return made(config, seed=None)
    auto = tf.AutoModelForImageTextToText if hasattr(config, "vision_config") else tf.AutoModelForCausalLM
    model = auto.from_config(config, dtype=torch.float32).eval()
    if seed is not None:
        torch.manual_seed(seed)
        with torch.no_grad():
            for tensor in model.state_dict().values():
                tensor.normal_(0, 0.1) if tensor.is_floating_point() else None
    return model


def checkpoint(folder, model, dtype=torch.float32):
    """A checkpoint as the engine writes it: the module's own parameters."""
    folder.mkdir()
    (folder / "manifest.json").write_text("{}")
    values = {name: one.detach().to(dtype).clone() for name, one in model.named_parameters()}
    safetensors.save_file(values, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def tensors(folder):
    return {name: one for file in folder.glob("*.safetensors") for name, one in safetensors.load_file(file).items()}


def equal(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[key], other[key]) and one[key].dtype == other[key].dtype for key in one)


def logits(model):
    ids = torch.arange(1, 35).reshape(2, 17)
    with torch.no_grad():
        return model.eval()(input_ids=ids, use_cache=False).logits


@pytest.mark.parametrize("name", CONFIGS)
def test_a_folder_as_transformers_writes_it(name, tmp_path):
    model = made(CONFIGS[name]())
    where = checkpoint(tmp_path / "checkpoint", model)
    model.save_pretrained(tmp_path / "right")
    _save.save_pretrained(where, tmp_path / "out", model)
    assert sorted(os.listdir(tmp_path / "out")) == sorted(os.listdir(tmp_path / "right"))
    assert equal(tensors(tmp_path / "out"), tensors(tmp_path / "right"))
    for file in (tmp_path / "right").glob("*.json"):
        assert json.loads((tmp_path / "out" / file.name).read_text()) == json.loads(file.read_text()), file.name
    assert torch.equal(logits(type(model).from_pretrained(tmp_path / "out")), logits(model))


@pytest.mark.parametrize("name", CONFIGS)
def test_weights_by_ranges(name, tmp_path):
    """Of a folder of transformers, and of one that has the module's own names, for a module on the meta device."""
    model = made(CONFIGS[name]())
    model.save_pretrained(tmp_path / "right", max_shard_size="20KB")
    own = checkpoint(tmp_path / "own", model)
    empty = made(CONFIGS[name](), meta=True)
    assert len(list((tmp_path / "right").glob("*.safetensors"))) > 1
    numbers = random.Random(1)
    for source in (tmp_path / "right", own, [own / "model.safetensors"]):
        weights = _save.weights_of(source, empty)
        assert weights.keys() == dict(model.named_parameters()).keys()
        for key, parameter in model.named_parameters():
            flat = parameter.detach().reshape(-1)
            assert torch.equal(weights[key](0, len(flat)), flat), key
            begin, end = sorted(numbers.choices(range(len(flat) + 1), k=2))
            assert torch.equal(weights[key](begin, end), flat[begin:end]) and len(weights[key](begin, begin)) == 0, key
    buffers = [key for key in model.state_dict() if key not in dict(model.named_parameters(remove_duplicate=False))]
    for key, values in _save.weights_of(tmp_path / "right", empty, buffers).items():
        assert torch.equal(values(0, model.state_dict()[key].numel()), model.state_dict()[key].reshape(-1))


def test_only_one_expert_is_read_at_a_time(tmp_path, monkeypatch):
    model = made(CONFIGS["mixtral"]())
    model.save_pretrained(tmp_path / "right")
    read = []
    of_file = _safetensors.Stored.values
    monkeypatch.setattr(_safetensors.Stored, "values", lambda self, begin, end: read.append(self.name) or of_file(self, begin, end))
    values = _save.weights_of(tmp_path / "right", model)["model.layers.0.mlp.experts.gate_up_proj"]
    expert = 2 * 48 * 32
    for begin in range(expert, 2 * expert, 512):
        values(begin, begin + 512)
    assert sorted(read) == [f"model.layers.0.block_sparse_moe.experts.1.{one}.weight" for one in ("w1", "w3")]
    where = checkpoint(tmp_path / "checkpoint", model)
    sizes = []
    monkeypatch.setattr(_safetensors.Stored, "values", lambda self, begin, end: sizes.append(end - begin) or of_file(self, begin, end))
    _save.save_pretrained(where, tmp_path / "out", model)
    assert max(sizes) == 99 * 32 < 4 * 48 * 32, "the embedding is the largest piece, not all experts of a layer"


def test_types_are_those_of_the_checkpoint(tmp_path):
    model = made(CONFIGS["qwen3_moe"]())
    where = checkpoint(tmp_path / "checkpoint", model, torch.bfloat16)
    _save.save_pretrained(where, tmp_path / "out", made(CONFIGS["qwen3_moe"](), meta=True))
    assert equal(tensors(tmp_path / "out"), {key: one.bfloat16() for key, one in _right(model, tmp_path).items()})
    assert json.loads((tmp_path / "out" / "config.json").read_text())["dtype"] == "bfloat16"
    values = _save.weights_of(tmp_path / "out", model)["model.embed_tokens.weight"](3, 9)
    assert values.dtype == torch.bfloat16 and torch.equal(values, model.get_input_embeddings().weight.detach().reshape(-1)[3:9].bfloat16())


def _right(model, tmp_path):
    model.save_pretrained(tmp_path / "right")
    return tensors(tmp_path / "right")


def test_what_needs_no_change_is_linked(tmp_path):
    model = made(CONFIGS["llama"]())
    where = checkpoint(tmp_path / "checkpoint", model)
    _save.save_pretrained(where, tmp_path / "out", model)
    assert os.path.samefile(where / "model.safetensors", tmp_path / "out" / "model.safetensors")


@pytest.mark.parametrize("name", ["llama", "mixtral"])
def test_shards(name, tmp_path):
    model = made(CONFIGS[name]())
    _save.save_pretrained(checkpoint(tmp_path / "checkpoint", model), tmp_path / "out", model, max_shard_size=20_000)
    model.save_pretrained(tmp_path / "right", max_shard_size=20_000)
    right, got = (json.loads((tmp_path / one / "model.safetensors.index.json").read_text()) for one in ("right", "out"))
    assert got["metadata"] == right["metadata"] and got["weight_map"].keys() == right["weight_map"].keys()
    assert equal(tensors(tmp_path / "out"), tensors(tmp_path / "right"))
    assert torch.equal(logits(type(model).from_pretrained(tmp_path / "out")), logits(model))


def test_tied_weights_under_either_name(tmp_path):
    """The engine keeps a tied weight under the first name that the module has for it."""
    model = made(CONFIGS["llama"]())
    where = checkpoint(tmp_path / "checkpoint", model)
    values = tensors(where)
    values["lm_head.weight"] = values.pop("model.embed_tokens.weight")
    safetensors.save_file(values, where / "model.safetensors", metadata={"format": "pt"})
    _save.save_pretrained(where, tmp_path / "out", model)
    assert equal(tensors(tmp_path / "out"), _right(model, tmp_path))
    assert torch.equal(_save.weights_of(where, model)["model.embed_tokens.weight"](0, 5), values["lm_head.weight"].reshape(-1)[:5])
    values["model.embed_tokens.weight"] = values["lm_head.weight"] + 1
    safetensors.save_file(values, where / "model.safetensors", metadata={"format": "pt"})
    _save.save_pretrained(where, tmp_path / "both", model)
    assert equal(tensors(tmp_path / "both"), values), "a checkpoint with both has trained them apart"


def test_untied_weights_stay_apart(tmp_path):
    config = CONFIGS["llama"]()
    config.tie_word_embeddings = False
    model = made(config)
    _save.save_pretrained(checkpoint(tmp_path / "checkpoint", model), tmp_path / "out", model)
    assert equal(tensors(tmp_path / "out"), _right(model, tmp_path)) and "lm_head.weight" in tensors(tmp_path / "out")


def test_files_of_a_tokenizer(tmp_path):
    tokenizers = pytest.importorskip("tokenizers")
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0, "b": 1}, unk_token="a"))
    tokenizer = tf.PreTrainedTokenizerFast(tokenizer_object=words, unk_token="a", chat_template="{{ messages }}")
    model = made(CONFIGS["llama"]())
    tokenizer.save_pretrained(tmp_path / "right")
    files = _save.pretrained_files(model, tokenizer)
    assert {"config.json", "generation_config.json"} < files.keys()
    for path in (tmp_path / "right").iterdir():
        assert files[path.name] == path.read_bytes()
    _save.save_pretrained(checkpoint(tmp_path / "checkpoint", model), tmp_path / "out", model, tokenizer)
    assert tf.AutoTokenizer.from_pretrained(tmp_path / "out").chat_template == "{{ messages }}"


def test_rules_for_the_modules_own_names_are_left_out(tmp_path):
    """Of a family whose rules would rename the module's own names as well."""
    vision = dict(hidden_size=32, intermediate_size=48, num_heads=4, depth=1)
    text = dict(**GROUPED, moe_num_experts=4, moe_k=2, moe_intermediate_size=[16, 8], moe_num_shared_experts=1,
                mlp_layer_types=["dense", "sparse"], rope_parameters=dict(rope_type="default", rope_theta=1e4, mrope_section=[1, 1, 2]))
    config = tf.Ernie4_5_VLMoeConfig(text_config=text, vision_config=vision)
    model = made(config)
    weights = _save.weights_of(checkpoint(tmp_path / "own", model), made(config, meta=True))
    assert all(torch.equal(weights[name](0, one.numel()), one.detach().reshape(-1)) for name, one in model.named_parameters())


class Plain(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.one = torch.nn.Linear(3, 4)
        self.two = torch.nn.Linear(4, 3, bias=False)
        self.norm = torch.nn.BatchNorm1d(4)


def test_plain_modules(tmp_path):
    model = Plain()
    model.norm.running_mean.normal_()
    where = checkpoint(tmp_path / "checkpoint", model)
    assert _save.pretrained_files(model) == {}
    _save.save_pretrained(where, tmp_path / "out", model)
    assert os.listdir(tmp_path / "out") == ["model.safetensors"] and equal(tensors(tmp_path / "out"), dict(model.state_dict()))
    weights = _save.weights_of(tmp_path / "out", Plain().to("meta"), ["one.weight", "norm.running_mean"])
    assert torch.equal(weights["one.weight"](2, 7), model.one.weight.detach().reshape(-1)[2:7])
    assert torch.equal(weights["norm.running_mean"](0, 4), model.norm.running_mean)
    model._keys_to_ignore_on_save = ["two.weight", "norm.num_batches_tracked"]
    _save.save_pretrained(where, tmp_path / "some", model)
    assert tensors(tmp_path / "some").keys() == model.state_dict().keys() - set(model._keys_to_ignore_on_save)
    with pytest.raises(DataError, match="got none for norm.running_mean, norm.running_var"):
        _save.save_pretrained(where, tmp_path / "other", model.to("meta"))


class Tied(torch.nn.Module):
    def __init__(self, first):
        super().__init__()
        self.head = torch.nn.Linear(3, 4, bias=False)
        self.embed = torch.nn.Embedding(4, 3)
        self.embed.weight = self.head.weight
        self.all_tied_weights_keys = {"head.weight": "embed.weight"} if first == "embed" else {}


@pytest.mark.parametrize("first", ["head", "embed"])
def test_tied_weights_are_saved_once(first, tmp_path):
    """Under the name that transformers declares to be the first, else under the module's first."""
    model = Tied(first)
    _save.save_pretrained(checkpoint(tmp_path / "checkpoint", model), tmp_path / "out", model)
    assert equal(tensors(tmp_path / "out"), {f"{first}.weight": model.head.weight.detach()})


def test_tied_weights_that_are_apart_in_the_module(tmp_path):
    """A run binds each name to the engine's memory, so that the parameters are no longer one object."""
    model = made(CONFIGS["llama"]())
    where, right = checkpoint(tmp_path / "checkpoint", model), _right(model, tmp_path)
    model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.detach().clone())
    _save.save_pretrained(where, tmp_path / "out", model)
    assert equal(tensors(tmp_path / "out"), right)


def test_large_tensors_and_types_of_several_sizes(tmp_path, monkeypatch):
    monkeypatch.setattr(_safetensors, "_PIECE", 64)
    values = {"a": torch.randn(3).bfloat16(), "b": torch.randn(77), "c": torch.randn(41).double(), "d": torch.tensor(True),
              "e": torch.zeros(0)}
    safetensors.save_file(values, tmp_path / "in.safetensors")
    stored = _safetensors.stored_in(tmp_path / "in.safetensors")
    with _safetensors.Writer(tmp_path / "out.safetensors", {key: (one.dtype, one.shape) for key, one in stored.items()}) as writer:
        for key in reversed(stored):
            writer.copy(key, stored[key])
    assert equal(safetensors.load_file(tmp_path / "out.safetensors"), values)
    content = (tmp_path / "out.safetensors").read_bytes()
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    assert all(header[key]["data_offsets"][0] % one.dtype.itemsize == 0 for key, one in values.items())


@pytest.mark.parametrize("around, task", [(True, "CAUSAL_LM"), (True, None), (False, None)], ids=["PeftModel", "no task", "add_adapter"])
def test_adapters_as_peft_saves_them(around, task, tmp_path, monkeypatch):
    peft = pytest.importorskip("peft")
    # transformers 5.24 asks for a PEFT that was not out yet when this was written.
    monkeypatch.setattr("transformers.integrations.peft.check_peft_version", lambda **least: None)
    config = peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"], modules_to_save=["norm"] if around else None, task_type=task)
    base = made(CONFIGS["llama"]())
    base.save_pretrained(tmp_path / "base")
    base = type(base).from_pretrained(tmp_path / "base")
    if around:
        model = peft.get_peft_model(base, config)
    else:
        base.add_adapter(config)
        model = base
    with torch.no_grad():
        for name, one in model.named_parameters():
            one.normal_(0, 0.1) if one.requires_grad else None
    where = checkpoint(tmp_path / "checkpoint", model)
    model.save_pretrained(tmp_path / "right")
    _save.save_pretrained(where, tmp_path / "out", model)
    assert sorted(os.listdir(tmp_path / "out")) == ["adapter_config.json", "adapter_model.safetensors"]
    assert equal(tensors(tmp_path / "out"), tensors(tmp_path / "right"))
    right, got = (json.loads((tmp_path / one / "adapter_config.json").read_text()) for one in ("right", "out"))
    assert got == right
    again = peft.PeftModel.from_pretrained(type(base).from_pretrained(tmp_path / "base"), tmp_path / "out")
    assert torch.equal(logits(again), logits(model))
    if around:
        model.add_adapter("second", peft.LoraConfig(r=4, target_modules=["q_proj"]))
        model.base_model.set_adapter(["default", "second"])
        with pytest.raises(UsageError, match="expected one active adapter, got default, second"):
            _save.save_pretrained(where, tmp_path / "two", model)


def test_checkpoints_that_are_refused(tmp_path):
    model = made(CONFIGS["llama"]())
    where, out = checkpoint(tmp_path / "checkpoint", model), tmp_path / "out"
    file = where / "model.safetensors"
    whole = file.read_bytes()
    for content, words in [(whole[:-5], "the file is cut or damaged"), (whole[:100], "without its header"),
                           (b"", "got 0 bytes without its header"), (whole + b"x", "the file is cut or damaged"),
                           (whole[:8] + b"x" + whole[9:], "a header that cannot be read"),
                           (struct.pack("<Q", 1 << 40) + whole[8:], "without its header")]:
        file.write_bytes(content)
        with pytest.raises(DataError, match=words) as raised:
            _save.save_pretrained(where, out, model)
        assert str(file) in str(raised.value)
    file.write_bytes(whole)
    values = tensors(where)
    del values["model.norm.weight"]
    safetensors.save_file(values, file)
    with pytest.raises(DataError, match="expected tensors for all parameters of LlamaForCausalLM, got none for model.norm.weight"):
        _save.save_pretrained(where, out, model)
    values["model.norm.weight"] = torch.ones(31)
    safetensors.save_file(values, file)
    with pytest.raises(DataError, match=r"expected model.norm.weight of shape \(32,\) as in LlamaForCausalLM, got \(31,\)"):
        _save.save_pretrained(where, out, model)
    for name in ("model.safetensors", "manifest.json"):
        (where / name).unlink()
        with pytest.raises(DataError, match=f"got none with {name}"):
            _save.save_pretrained(where, out, model)
    assert sorted(os.listdir(tmp_path)) == ["checkpoint"], "nothing half-written stays"


def test_folders_that_are_refused(tmp_path):
    model = made(CONFIGS["mixtral"]())
    folder = tmp_path / "right"
    model.save_pretrained(folder, max_shard_size="20KB")
    index = folder / "model.safetensors.index.json"
    gate = "model.layers.0.mlp.experts.gate_up_proj"
    text = index.read_text()
    first = sorted(folder.glob("*.safetensors"))[0]
    content = first.read_bytes()
    first.unlink()
    with pytest.raises(DataError, match=f"expected the file {first}, got none"):
        _save.weights_of(folder, model)
    first.write_bytes(content[:-1])
    with pytest.raises(DataError, match="the file is cut or damaged"):
        _save.weights_of(folder, model)
    first.write_bytes(content)
    index.write_text("{}")
    with pytest.raises(DataError, match="expected a weight_map"):
        _save.weights_of(folder, model)
    index.write_text(text)
    values = tensors(folder)
    lost = {key: one for key, one in values.items() if "experts.1.w3" not in key}
    safetensors.save_file(lost, tmp_path / "lost.safetensors")
    with pytest.raises(DataError, match=r"experts"):
        _save.weights_of(tmp_path / "lost.safetensors", model)
    none = {key: one for key, one in values.items() if "experts" not in key}
    safetensors.save_file(none, tmp_path / "none.safetensors")
    with pytest.raises(DataError, match=rf"got none for {gate}, .* and 1 more"):
        _save.weights_of(tmp_path / "none.safetensors", model)
    safetensors.save_file({**values, "model.norm.weight": torch.ones(32, dtype=torch.int8)}, tmp_path / "int8.safetensors")
    with pytest.raises(DataError, match="expected model.norm.weight as torch.float32 or another such type, got torch.int8"):
        _save.weights_of(tmp_path / "int8.safetensors", model)
    safetensors.save_file({**values, "model.norm.weight": torch.ones(32).to(torch.float8_e4m3fn)}, tmp_path / "float8.safetensors")
    with pytest.raises(DataError, match="got torch.float8_e4m3fn: weights that are quantized must be converted"):
        _save.weights_of(tmp_path / "float8.safetensors", model)
    with pytest.raises(UsageError, match="expected each tensor in one file"):
        _save.weights_of([tmp_path / "int8.safetensors", first], model)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "pytorch_model.bin").write_bytes(b"")
    with pytest.raises(DataError, match="got none: convert pytorch_model.bin"):
        _save.weights_of(tmp_path / "bin", model)
    with pytest.raises(UsageError, match="expected a range of elements of model.norm.weight from 0 to 32, got 30 to 33"):
        _save.weights_of(folder, model)["model.norm.weight"](30, 33)


def test_a_folder_appears_whole_or_not_at_all(tmp_path, monkeypatch):
    model = made(CONFIGS["mixtral"]())
    where, out = checkpoint(tmp_path / "checkpoint", model), tmp_path / "out"
    monkeypatch.setattr(_safetensors.os, "pwrite", lambda *given: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(DeviceError, match="No space left on device"):
        _save.save_pretrained(where, out, model)
    monkeypatch.undo()
    assert os.listdir(tmp_path) == ["checkpoint"]
    # A killed process leaves its partial folder; the next one removes it, but not that of a process that lives.
    code = "import fcntl, os, sys; lock = os.open(sys.argv[1], 0); fcntl.flock(lock, fcntl.LOCK_EX); print(flush=True); sys.stdin.read()"
    (tmp_path / "out.partial-1").mkdir()
    (tmp_path / "out.partial-2").mkdir()
    command = [sys.executable, "-c", code, tmp_path / "out.partial-1"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        holder.stdout.readline()
        _save.save_pretrained(where, out, model)
        holder.stdin.close()
    assert sorted(os.listdir(tmp_path)) == ["checkpoint", "out", "out.partial-1"]
    with _save._new_folder(str(tmp_path / "other")) as part:
        _save._remove_leftovers(str(tmp_path / "other"))
        assert os.path.isdir(part), "its own is locked"
    with pytest.raises(UsageError, match="expected the name of a new folder, got .*out, which exists"):
        _save.save_pretrained(where, out, model)

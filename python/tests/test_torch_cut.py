"""Cuts small models of transformers into blocks and compares their loss and gradients with PyTorch's, in fp64.

SPILLWAY_CUT_SWEEP=1 also runs configurations of more families than a test of seconds can."""

import copy
import os

import pytest

torch = pytest.importorskip("torch")
tf = pytest.importorskip("transformers")

from spillway.torch import _cut  # noqa: E402  (after the checks for PyTorch)
from torch_cut_runs import expect_as_plain, expect_layers  # noqa: E402

VOCABULARY, LENGTH = 99, 17
BASE = dict(vocab_size=VOCABULARY, hidden_size=32, intermediate_size=48, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2,
            head_dim=8, max_position_embeddings=64, pad_token_id=0, bos_token_id=1, eos_token_id=2)
LINEAR = dict(linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=8, linear_value_head_dim=8)
EXPERTS = dict(moe_intermediate_size=16, num_experts=4, num_experts_per_tok=2)
ROUTED = dict(n_routed_experts=4, num_experts_per_tok=2, n_group=1, topk_group=1, moe_intermediate_size=16, first_k_dense_replace=1)
LATENT = dict(num_key_value_heads=4, q_lora_rank=16, kv_lora_rank=16, qk_rope_head_dim=8, qk_nope_head_dim=8, v_head_dim=8, **ROUTED)
SLIDING = dict(sliding_window=8, layer_types=["sliding_attention", "full_attention"] * 2)
MAMBA = dict(mamba_n_heads=4, mamba_d_head=16, mamba_d_state=8, mamba_n_groups=1)
LOCAL = dict(num_local_experts=4, num_experts_per_tok=2, output_router_logits=True)
PER_LAYER = dict(hidden_size_per_layer_input=8, vocab_size_per_layer_input=VOCABULARY)
GEMMA4 = dict(global_head_dim=16, **SLIDING)
SMALL_GPT = dict(vocab_size=VOCABULARY, n_embd=32, n_layer=4, n_head=4, n_positions=64)
FAMILIES = {
    "llama": dict(BASE),
    "llama with tied embeddings": dict(BASE, tie_word_embeddings=True),
    "gpt2": SMALL_GPT,
    "qwen3_next": dict(BASE, **LINEAR, **EXPERTS, shared_expert_intermediate_size=16, output_router_logits=True),
    "qwen3_5_text": dict(BASE, **LINEAR),
    "gemma3_text": dict(BASE, **SLIDING),
    "gemma4_text with inputs for each layer": dict(BASE, **GEMMA4, **PER_LAYER),
    "gemma4_text with shared keys": dict(BASE, **GEMMA4, **PER_LAYER, num_kv_shared_layers=2),
    "gpt_oss": dict(BASE, **LOCAL, sliding_window=8),
    "deepseek_v3": dict(BASE, **LATENT),
    "glm4_moe": dict(BASE, **ROUTED),
    "olmo3": dict(BASE, sliding_window=8),
    "mixtral": dict(BASE, **LOCAL),
    "nemotron_h": dict(BASE, mamba_num_heads=4, mamba_head_dim=16, ssm_state_size=8, n_groups=1, n_routed_experts=4, num_experts_per_tok=2,
                       n_group=1, topk_group=1, moe_intermediate_size=16, moe_shared_expert_intermediate_size=16,
                       layers_block_type=["mamba", "attention", "mamba", "moe"]),
    "lfm2": dict(BASE, block_ff_dim=48, full_attn_idxs=[1, 3]),
    "zamba2": dict(BASE, mamba_d_state=8, n_mamba_heads=4, mamba_ngroups=1, num_mem_blocks=1, layers_block_type=["mamba", "hybrid"] * 2,
                   attention_head_dim=16, mamba_headdim=16),
}
MORE_FAMILIES = {
    **{name: dict(BASE) for name in (
        "qwen2 qwen3 phi3 gpt_neox olmo2 glm4 ernie4_5 stablelm starcoder2 smollm3 hunyuan_v1_dense seed_oss arcee doge nanochat diffllama "
        "bitnet").split()},
    **{name: dict(BASE, sliding_window=8) for name in "mistral gemma2 cohere2 exaone4 vaultgemma".split()},
    **{name: dict(BASE, **EXPERTS, output_router_logits=True) for name in "qwen3_moe olmoe flex_olmo".split()},
    **{name: dict(BASE, **LOCAL) for name in "granitemoe phimoe minimax_m2".split()},
    "deepseek_v2": dict(BASE, **LATENT),
    "dots1": dict(BASE, **ROUTED, n_shared_experts=1),
    **{name: dict(BASE, **LATENT, index_head_dim=16, index_n_heads=2, index_topk=4) for name in "deepseek_v32 glm_moe_dsa".split()},
    "qwen2_moe": dict(BASE, **EXPERTS, shared_expert_intermediate_size=16, output_router_logits=True),
    "qwen3_5_moe_text": dict(BASE, **LINEAR, **EXPERTS, shared_expert_intermediate_size=16),
    "gemma3n_text": dict(BASE, **SLIDING, **PER_LAYER, num_kv_shared_layers=2, altup_num_inputs=2, laurel_rank=8,
                         activation_sparsity_pattern=[0.0] * 4),
    "gemma4_text": dict(BASE, **GEMMA4, hidden_size_per_layer_input=0),
    "ernie4_5_moe": dict(BASE, moe_intermediate_size=16, moe_num_experts=4, moe_k=2, moe_layer_start_index=1, output_router_logits=True),
    "olmo_hybrid": dict(BASE, **LINEAR),
    "lfm2_moe": dict(BASE, **EXPERTS, num_dense_layers=1, layer_types=["conv", "full_attention"] * 2),
    "granitemoehybrid": dict(BASE, **MAMBA, **LOCAL, shared_intermediate_size=16, layer_types=["mamba", "attention"] * 2),
    "falcon_h1": dict(BASE, **MAMBA, mamba_d_ssm=64),
    "bamba": dict(BASE, **MAMBA, attn_layer_indices=[1, 3]),
    "jamba": dict(BASE, num_experts=4, num_experts_per_tok=2, mamba_d_state=8, mamba_dt_rank=8, attn_layer_period=2, attn_layer_offset=1,
                  expert_layer_period=2, expert_layer_offset=1, use_mamba_kernels=False, output_router_logits=True),
    "mamba": dict(BASE, state_size=8),
    "mamba2": dict(BASE, state_size=8, num_heads=4, head_dim=16, n_groups=1),
    "recurrent_gemma": dict(BASE, lru_width=32, attention_window_size=8, block_types=["recurrent", "attention"]),
    "llama4_text": dict(BASE, num_local_experts=2, intermediate_size_mlp=48, attention_chunk_size=8, interleave_moe_layer_step=2),
    "minimax": dict(BASE, **LOCAL, layer_types=["linear_attention", "full_attention"] * 2),
    "bloom": dict(vocab_size=VOCABULARY, hidden_size=32, n_layer=4, n_head=4),
    "mpt": dict(vocab_size=VOCABULARY, d_model=32, n_layers=4, n_heads=4, max_seq_len=64),
    "gptj": dict(SMALL_GPT, rotary_dim=4),
    "longcat_flash": dict({name: value for name, value in {**BASE, **LATENT}.items() if name != "first_k_dense_replace"}, num_layers=4,
                          num_hidden_layers=8, moe_topk=2, expert_ffn_hidden_size=16, ffn_hidden_size=48, zero_expert_num=1),
    "opt": dict(BASE, ffn_dim=48, word_embed_proj_dim=32),
    "rwkv": dict(BASE, attention_hidden_size=32, context_length=64),
}


def made(family, device="cpu", **options):
    """A causal language model in training mode, which drops out where its family does."""
    name, _, _ = family.partition(" ")
    config = tf.CONFIG_MAPPING[name](**{**FAMILIES, **MORE_FAMILIES}[family])
    options = dict(dtype=torch.float64, attn_implementation="eager", experts_implementation="eager", **options)
    torch.manual_seed(1)
    with torch.device(device):
        try:
            model = tf.AutoModelForCausalLM.from_config(config, **options)
        except (TypeError, ValueError):  # a family without experts
            del options["experts_implementation"]
            model = tf.AutoModelForCausalLM.from_config(config, **options)
    return model.train()


def batch_of_tokens(padded=False):
    ids = torch.randint(3, VOCABULARY - 10, (2, LENGTH), generator=torch.Generator().manual_seed(2))
    labels = ids.clone()
    labels[:, :3] = -100
    if not padded:
        return dict(input_ids=ids, labels=labels)
    mask = (torch.arange(LENGTH) < torch.tensor([[LENGTH], [11]])).long()
    return dict(input_ids=ids, labels=labels.masked_fill(mask == 0, -100), attention_mask=mask)


@pytest.mark.parametrize("family", FAMILIES)
def test_families(family):
    model, batch = made(family), batch_of_tokens()
    cut = _cut.cut(model, batch)
    expect_layers(cut, 4)
    expect_as_plain(cut, model, batch)
    expect_as_plain(cut, model, batch_of_tokens(padded=True))
    assert _cut.check(cut, model, batch) == 0


@pytest.mark.parametrize("family", MORE_FAMILIES)
@pytest.mark.skipif("SPILLWAY_CUT_SWEEP" not in os.environ, reason="takes minutes: set SPILLWAY_CUT_SWEEP=1")
def test_more_families(family):
    test_families(family)


@pytest.mark.parametrize("family", ["gpt2", "llama", "gemma4_text with shared keys", "nemotron_h"])
def test_made_on_the_meta_device(family):
    real, model = made(family), made(family, "meta")
    cut = _cut.cut(model, batch_of_tokens())
    expect_layers(cut, 4)
    assert all(parameter.is_meta for parameter in model.parameters()) and not any(buffer.is_meta for buffer in model.buffers())
    for one in (cut, copy.deepcopy(cut)):
        expect_as_plain(one, real, batch_of_tokens(padded=True))


def image_batch(patches):
    batch = batch_of_tokens(padded=True)
    ids = batch["input_ids"].clone()
    ids[:, 1], ids[:, 2:6] = 97, 98  # where a picture begins, and where its four tokens stand
    return dict(batch, input_ids=ids, pixel_values=torch.randn(*patches, generator=torch.Generator().manual_seed(4), dtype=torch.float64))


def test_vision_language_model_with_layers_named():
    vision = dict(model_type="clip_vision_model", hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=4,
                  image_size=16, patch_size=8)
    config = tf.LlavaConfig(vision_config=vision, text_config=dict(model_type="llama", **BASE), image_token_index=98)
    model = tf.AutoModelForImageTextToText.from_config(config, dtype=torch.float64, attn_implementation="sdpa").train()
    model.model.vision_tower.requires_grad_(False)
    batch = image_batch((2, 3, 16, 16))
    cut = _cut.cut(model, batch, layers="model.language_model.layers")
    expect_layers(cut, 4)
    assert any("vision_tower" in name for name in cut.pieces[0].parameters)
    expect_as_plain(cut, model, batch)
    expect_as_plain(cut, model, dict(batch, pixel_values=batch["pixel_values"].flip(0)))


def test_pictures_that_the_model_adds_between_layers_join_blocks():
    text = dict(BASE, rope_parameters=dict(rope_type="default", mrope_section=[1, 1, 2], rope_theta=1e4))
    vision = dict(depth=3, hidden_size=32, intermediate_size=48, num_heads=4, out_hidden_size=32, patch_size=4, spatial_merge_size=2,
                  deepstack_visual_indexes=[0, 1], num_position_embeddings=16)
    config = tf.Qwen3VLConfig(vision_config=vision, text_config=text, image_token_id=98, vision_start_token_id=97, vision_end_token_id=96,
                              video_token_id=95)
    model = tf.AutoModelForImageTextToText.from_config(config, dtype=torch.float64, attn_implementation="sdpa").train()
    batch = image_batch((32, 96))
    batch.update(image_grid_thw=torch.tensor([[1, 4, 4]] * 2), mm_token_type_ids=(batch["input_ids"] == 98).long())
    cut = _cut.cut(model, batch)
    names = [piece.name for piece in cut.pieces]
    assert names == ["embedding+model.language_model.layers.0-1", "model.language_model.layers.2", "model.language_model.layers.3", "head"]
    assert len(cut.notes) == 1 and cut.notes[0].startswith(f"{names[0]} is one block, because the model computes between them")
    expect_as_plain(cut, model, batch)


def test_encoder_and_decoder_with_both_lists_named():
    config = tf.T5Config(vocab_size=VOCABULARY, d_model=32, d_kv=8, d_ff=48, num_layers=3, num_heads=4, decoder_start_token_id=0)
    model = tf.T5ForConditionalGeneration(config).double().train()
    cut = _cut.cut(model, batch_of_tokens(), layers="encoder.block, decoder.block")
    expect_layers(cut, 6)
    assert [piece.name for piece in cut.pieces if "shared.weight" in piece.parameters] == ["embedding", "encoder.block.2", "head"]
    expect_as_plain(cut, model, batch_of_tokens(padded=True))


def test_arguments_of_layers_are_made_once_for_a_batch():
    model = made("llama")
    cut, batch = _cut.cut(model, batch_of_tokens()), batch_of_tokens(padded=True)
    made_for = []
    model.model.rotary_emb.register_forward_hook(lambda module, args, result: made_for.append(args[0].shape))
    with torch.no_grad():
        carried = cut.pieces[0].run((), batch)
        made_for.clear()
        for piece in cut.pieces[1:3] * 2:
            carried = piece.run(carried, batch)
        assert len(made_for) == 1
        cut.pieces[1].run(carried, dict(batch))
        assert len(made_for) == 2
        cut.pieces[1].run(carried, batch)
        batch["attention_mask"].fill_(1)
        changed = cut.pieces[1].run(carried, batch)[0]
        assert len(made_for) == 4
        assert torch.equal(changed, cut.pieces[1].run(carried, batch_of_tokens())[0])

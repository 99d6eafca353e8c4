"""The weights of samples in the losses of transformers' models, which differ in what they take the mean over."""

import pytest

torch = pytest.importorskip("torch")
tf = pytest.importorskip("transformers")

from spillway.torch._weighting import weight_of  # noqa: E402

SMALL = dict(vocab_size=99, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4)
BART = dict(vocab_size=99, d_model=32, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2, decoder_attention_heads=2)
MODELS = {
    "next labels": [lambda: tf.LlamaForCausalLM(tf.LlamaConfig(**SMALL)), lambda: tf.OPTForCausalLM(tf.OPTConfig(**SMALL, word_embed_proj_dim=32)),
                    lambda: tf.GPT2LMHeadModel(tf.GPT2Config(vocab_size=99, n_embd=32, n_layer=2, n_head=4)),
                    lambda: tf.MixtralForCausalLM(tf.MixtralConfig(**SMALL, num_key_value_heads=2, num_local_experts=4,
                                                                 output_router_logits=True))],
    "labels": [lambda: tf.T5ForConditionalGeneration(tf.T5Config(d_model=32, num_layers=2, num_heads=4, vocab_size=99, decoder_start_token_id=0)),
               lambda: tf.BartForConditionalGeneration(tf.BartConfig(**BART)), lambda: tf.BertForMaskedLM(tf.BertConfig(**SMALL))],
}


@pytest.mark.parametrize("weight, make", [(weight, make) for weight, makes in MODELS.items() for make in makes])
@pytest.mark.parametrize("expected", ["labels", "next labels"])
def test_the_model_tells_its_weights(weight, make, expected):
    torch.manual_seed(0)
    ids = torch.randint(3, 90, (2, 17))
    assert weight_of(make(), {"input_ids": ids, "labels": ids.clone()}, expected) == weight


def test_classes_are_counted_by_samples():
    model = tf.LlamaForSequenceClassification(tf.LlamaConfig(**SMALL, pad_token_id=0))
    assert weight_of(model, {"input_ids": torch.randint(3, 90, (2, 17)), "labels": torch.tensor([0, 1])}, "labels") == "one"

// Defines DecoderStyle: the ways in which a family of decoders differs from Llama that no key of config.json changes.
#pragma once
#include "models/families/model_config.h"

namespace spillway::models {

struct DecoderStyle {
  enum class QkNorm { none, head, whole };  // the norm of queries and keys: of each head, or of the whole before the split into heads
  QkNorm qk_norm = QkNorm::none;

  /// The names of the norms; those of a block are each a norm of the input or of the output of attention or MLP; null for a norm that the
  /// block lacks.
  struct Norms {
    const char *before_attention = "input_layernorm", *after_attention = nullptr;
    const char *before_mlp = "post_attention_layernorm", *after_mlp = nullptr;
    const char* last = "model.norm";  // the norm before the head
  } norms;
  struct AttentionNames {
    const char *attention = "self_attn", *output = "o_proj", *q_norm = "q_norm", *k_norm = "k_norm";
  } attention_names;
  struct MlpNames {
    const char *mlp = "mlp", *gate = "gate_proj", *up = "up_proj", *down = "down_proj", *gate_up = "gate_up_proj";
  } mlp_names;
  const char* eps_key = "rms_norm_eps";  // the key of config.json with the epsilon of the norms
  bool parallel = false;                 // whether attention and MLP read the same normed input, and the block adds both results at once
  bool layer_norm = false;               // whether norms also subtract the mean (layer norms without bias) instead of RMS norms
  double gain_offset = 0;                // the number that is added to the weights of the RMS norms
  bool fused_qkv = false;                // whether one projection gives queries, keys and values
  bool output_gate = false;       // whether attention's output is multiplied by the sigmoid of a gate beside the queries of each head
  bool fused_gate = false;        // whether one projection gives the MLP's gate and up
  bool gelu_gate = false;         // whether the MLP's gate is a GELU (tanh form) instead of a SiLU
  bool value_norm = false;        // whether values have an RMS norm of each head, without a gain
  bool layer_scalar = false;      // whether a number of the folder, "layer_scalar", multiplies the output of each block
  bool scaled_embedding = false;  // whether the embedding is multiplied by the square root of the width
  bool rope_pairs = false;        // whether rotary positions rotate neighbours (2i, 2i + 1) instead of elements half a head apart
  bool sinks = false;             // whether each head has a logit that takes part in its softmax without a key, "sinks"

  /// The names of a mixture of experts, of its router and of an expert's projections, and how folders store these. Those of the router and
  /// of the stacked experts are within the mixture, those of the shared expert and its gate within the layer.
  struct ExpertNames {
    const char *mixture = "mlp", *router = "gate", *gate = "gate_proj", *up = "up_proj", *down = "down_proj";
    const char* correction = "gate.e_score_correction_bias";  // of the router (RoutingConfig::corrected); within the mixture
    bool correction_is_row = false;                           // whether its shape is [1, E] instead of [E]
    const char* shared = "mlp.shared_experts";                // the MLP for every token, if the model has one
    const char* shared_gate = nullptr;  // the projection to the number whose sigmoid multiplies that MLP's output; null if none does
    const char *stacked_gate_up = "experts.gate_up_proj", *stacked_down = "experts.down_proj";
    bool biases = false;       // whether the router and the experts' projections have biases
    bool stacked = false;      // whether folders publish the experts stacked (StackedExpert in stacked_experts.h)
    bool interleaved = false;  // whether they stack them [in, out] with gate and up in turn (InterleavedExpert there)
  } experts;
};

/// Returns the style of a decoder's family.
const DecoderStyle& style_of(const ModelConfig& config);

}  // namespace spillway::models

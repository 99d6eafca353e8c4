// Defines ModelConfig: the architecture and hyperparameters of a model as a value, without the words of any file. A family's reader
// (family.h) makes it from a config.json; models::build makes the model from it. A ModelConfig is a value type and thread-safe.
#pragma once
#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "kernels/elementwise/clamped_glu.h"
#include "kernels/products/quantized.h"
#include "kernels/sequence/attention.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace spillway::models {

/// The families of models: GPT-2; decoders with rotary positions and gated MLPs (decoder.h); networks for images.
enum class Family {
  gpt2,
  llama,
  mistral,
  qwen2,
  qwen3,
  qwen3_moe,
  mixtral,
  gemma2,
  gemma3,
  gemma4,
  phi3,
  olmo2,
  olmo3,
  smollm3,
  ministral3,
  seed_oss,
  granite,
  granite_hybrid,
  lfm2,
  qwen3_5,
  qwen3_5_moe,
  qwen3_next,
  glm4,
  glm4_moe,
  ernie4_5_moe,
  deepseek_v2,
  deepseek_v3,
  glm4_moe_lite,
  kimi_k2,
  cohere2,
  gpt_oss,
  cifar_net,
  lenet,
  alexnet,
  vgg11,
  resnet
};

/// The activation of GPT-2's MLP. (MLPs of the other families are gated.)
enum class Activation { gelu_tanh, gelu_erf, relu };

/// A rule by which the wavelengths of rotary position embeddings are stretched by `factor`. linear stretches all
/// wavelengths (Chen et al., arXiv:2306.15595). llama3 stretches wavelengths beyond original_positions /
/// low_freq_factor, keeps those below original_positions / high_freq_factor and blends those between. yarn (Peng et
/// al., arXiv:2309.00071) stretches wavelengths that turn less than beta_slow times within original_positions and
/// keeps those that turn more than beta_fast times; yarn also multiplies the rotated elements by attention_factor. longrope (Ding et al.,
/// arXiv:2402.13753) has a divisor for each pair of elements: that of short_factors while no row is longer than original_positions, that of
/// long_factors otherwise. It too multiplies by attention_factor. proportional (Gemma 4) stretches all wavelengths by `factor` and rotates
/// the first `share` of all pairs alone, but with the wavelengths that they have among all pairs.
struct RopeScaling {
  double factor = 8, low_freq_factor = 1, high_freq_factor = 4;
  i64 original_positions = 8192;
  enum class Kind { llama3, linear, yarn, longrope, proportional } kind = Kind::llama3;
  double beta_fast = 32, beta_slow = 1, attention_factor = 1;
  bool whole_pairs = true;  // yarn rounds its limits, indices of element pairs of a head, outwards to whole numbers
  std::vector<double> short_factors, long_factors;
  // Queries at position p are multiplied by 1 + query_growth ln(1 + floor(p / original_positions)), as in Llama 4 and Ministral 3.
  double query_growth = 0;
  double share = 1;
  // DeepSeek-V3's yarn: the numbers m of 0.1 m ln(factor) + 1. Attention scores are multiplied by the square of that with mscale_all, and
  // attention_factor is the quotient of both. 0 if they have no such meaning.
  double mscale = 0, mscale_all = 0;
  bool operator==(const RopeScaling&) const = default;
};

/// A low-rank adapter (nn::Lora) for a model's layers, with PEFT's settings.
struct LoraConfig {
  i64 rank = 8;
  double alpha = 8, dropout = 0;
  bool rank_stabilized = false;      // the scale is alpha / sqrt(rank) instead of alpha / rank
  std::vector<std::string> targets;  // the names of modules, or their last parts; empty means all linear layers except the head
  bool operator==(const LoraConfig&) const = default;
};

/// Latent attention (DeepSeek-V2, arXiv:2405.04434, section 2.1): a projection of the input to `key_rank` elements, normed, gives the keys'
/// unrotated elements and the values of all heads; the rotated elements of a key are the same in all heads. A head of queries and keys has
/// rotary_dim rotated elements of its head_dim.
struct LatentAttention {
  i64 query_rank = 0;  // the width of the normed projection that gives the queries; 0 if they are a projection of the input
  i64 key_rank = 0, value_dim = 0;
  double norm_eps = 1e-6;
  bool operator==(const LatentAttention&) const = default;
};

/// How a router chooses and weights the experts of a token, where it differs from Mixtral's (kernels/experts/router.h).
struct RoutingConfig {
  bool wide = false;       // whether the router multiplies in fp32 whatever the model's type is
  bool sigmoid = false;    // whether each expert's probability is the sigmoid of its logit instead of a share of the softmax
  bool corrected = false;  // whether a number for each expert, e_score_correction_bias of the folder, is added for the choice alone
  // Experts are chosen from the chosen_groups best of so many groups. A group's score is the sum of its best_of_group largest numbers.
  i64 groups = 1, chosen_groups = 1, best_of_group = 1;
  double least_sum = 0, added_to_sum = 0;  // the weights are divided by max(their sum, least_sum) + added_to_sum
  double factor = 1;                       // the factor of the weights
  bool operator==(const RoutingConfig&) const = default;
};

/// A mixture of experts: each decoder layer that is not in dense_layers has `count` MLPs, the experts, and each token is processed by
/// `chosen` of them.
struct ExpertsConfig {
  i64 count = 8, chosen = 2, width = 0;  // `width` is the hidden width of an expert's MLP
  bool normalised = true;                // whether the weights of a token's experts add up to 1
  std::vector<i64> dense_layers;         // the layers with a plain MLP, in ascending order
  double balance = 0.001;                // the coefficient of the router loss, which balances the load of the experts
  bool evened_out = false;               // whether the router loss is part of the training loss
  RoutingConfig routing;
  i64 shared_width = 0;                    // the hidden width of the shared expert, an MLP for every token; 0 means that there is none
  bool beside = false;                     // whether each layer has the experts beside its MLP instead of in place of it
  std::optional<kernels::GluClamp> clamp;  // set if experts have the clamped gated unit of gpt-oss
  bool operator==(const ExpertsConfig&) const = default;
};

/// Attention in the layers without a window, where it differs from that of the layers with one (Gemma 4).
struct FullAttention {
  i64 kv_heads = 0, head_dim = 0;
  bool keys_are_values = false;  // whether the projection of the keys, before their norm and rotation, also gives the values
  bool operator==(const FullAttention&) const = default;
};

/// Holds what mixes the positions in a layer of a decoder.
enum class Mixer : u8 { attention, mamba2, short_conv, delta_net };

/// The state-space layers of Mamba 2: `heads` heads of head_dim elements, which share the projections of the inputs to and from the states
/// in `groups` groups; `state` elements of a state for each element of a head; `taps` taps of the convolution.
struct Mamba2Config {
  i64 heads = 0, head_dim = 0, groups = 1, state = 0, taps = 4;
  bool bias = false, conv_bias = true;                                           // whether the projections and the convolution have biases
  double smallest_dt = 0, largest_dt = std::numeric_limits<double>::infinity();  // the limits of the time step
  bool operator==(const Mamba2Config&) const = default;
};

/// The gated short convolutions of LFM2.
struct ShortConvConfig {
  i64 taps = 3;
  bool bias = false;  // whether the projections and the convolution have biases
  bool operator==(const ShortConvConfig&) const = default;
};

/// The layers of Gated DeltaNet: value_heads heads of value_dim elements; each of key_heads heads of queries and keys, of key_dim elements,
/// serves as many of them; `taps` taps of the convolution.
struct DeltaNetConfig {
  i64 key_heads = 0, value_heads = 0, key_dim = 0, value_dim = 0, taps = 4;
  // Whether one projection gives queries, keys, values and gates, those of a key head beside each other, and one the decays and rates.
  bool by_key_head = false;
  bool operator==(const DeltaNetConfig&) const = default;
};

/// The architecture of a residual network (resnet.h).
struct ResNetConfig {
  std::vector<i64> widths, blocks;  // per stage: width of the 3x3 convolutions, number of blocks; all stages but the first halve the image
  bool bottleneck = false;          // true: blocks of 1x1, 3x3 and a four times as wide 1x1 convolution; false: 3x3 and 3x3
  bool large_stem = false;          // the first layer is 7x7 with stride 2 and pooling, for photographs (true), or 3x3, for CIFAR (false)

  bool operator==(const ResNetConfig&) const = default;
};

struct ModelConfig {
  Family family = Family::gpt2;
  i64 layers = 0, width = 0, heads = 0;
  i64 kv_heads = 0;                                  // the number of key/value heads, a divisor of heads; for GPT-2 equal to heads
  i64 head_dim = 0;                                  // the elements of a head; for GPT-2 equal to width / heads
  i64 mlp_width = 0, positions = 0, vocabulary = 0;  // for image models, `positions` is 1 and `vocabulary` the number of classes
  bool tied_head = true;                             // whether the head's weight is the token embedding
  double norm_eps = 1e-5, initializer_range = 0.02;
  double embedding_dropout = 0, residual_dropout = 0, attention_dropout = 0;  // the dropout rates in training, in [0, 1)
  std::optional<i64> begin_token, pad_token;
  std::vector<i64> end_tokens;
  std::optional<i64> padding_row;        // the row of the token embedding that gets no gradient as input, like nn.Embedding's padding_idx
  Shape image_CHW;                       // the shape of an input image; rank 0 for text models
  std::vector<std::string> class_names;  // the name of each class of an image model; may be empty
  std::vector<i64> widths;               // for cifar_net and lenet: the widths of the convolutions and hidden linear layers, four in all
  ResNetConfig resnet;
  // The four members that follow are options of the caller and are not part of a config.json.
  kernels::AttentionLibrary attention = kernels::AttentionLibrary::own;
  std::optional<LoraConfig> lora;
  // the storage format of linear layers and experts; heads and routers are always plain
  kernels::WeightFormat base_weights = kernels::WeightFormat::plain;
  bool fp8 = false;  // whether the linear layers of blocks multiply in fp8 (ops/products/linear.h); not those of heads, experts and routers

  // The members that follow, up to the next group, are for GPT-2 only.
  Activation activation = Activation::gelu_tanh;
  bool scale_attention = true;            // whether attention scores are multiplied by 1/sqrt(head_dim)
  bool scale_attention_by_layer = false;  // whether scores are also multiplied by 1/(layer + 1)

  // The members that follow are for decoders other than GPT-2.
  // whether there are biases of queries, keys and values; of attention's output; and of all projections of the MLP
  bool attention_bias = false, output_bias = false, mlp_bias = false;
  double rope_theta = 10000;
  std::optional<RopeScaling> rope_scaling;
  i64 rotary_dim = 0;                      // the number of leading elements of a head that are rotated, even; 0 means all
  i64 window = 0;                          // the number of positions that a query attends to in a windowed layer, its own included
  std::vector<bool> windowed;              // for each layer, whether it has a window; empty if none has
  std::optional<double> local_rope_theta;  // the RoPE base of windowed layers; if it is set, rope_scaling does not apply to them
  std::vector<bool> unrotated;             // for each layer, whether it has no rotary positions; empty if all have them
  double query_scalar = 0;                 // attention scores are divided by its square root; 0 means that head_dim is used
  double attention_multiplier = 0;         // if it is not 0, attention scores are multiplied by it, and query_scalar has no effect
  // The factors of the embedding's rows, of what attention and MLP add to the residual stream, and of the logits; the divisor of the
  // logits.
  double embedding_multiplier = 1, residual_multiplier = 1, logit_multiplier = 1, logit_divisor = 1;
  double attention_softcap = 0, logit_softcap = 0;  // the soft caps of scores and logits; 0 means no soft cap
  std::optional<ExpertsConfig> experts;
  std::optional<FullAttention> full_attention;
  std::optional<LatentAttention> latent;
  // So many layers at the end use the keys and values of the last layer before them that has a window as they do.
  i64 shared_key_layers = 0;
  bool qk_normed = true;         // whether queries and keys have the norms that the family's style names
  bool wide_shared_mlp = false;  // whether these layers have MLPs of twice the width
  i64 layer_embedding = 0;       // the width of the embeddings that each layer has of its own (layer_input.h); 0 means none
  std::vector<Mixer> mixers;     // for each layer; empty if all are attention
  Mamba2Config mamba2;
  ShortConvConfig short_conv;
  DeltaNetConfig delta_net;

  bool operator==(const ModelConfig&) const = default;
  bool reads_images() const { return family >= Family::cifar_net; }
  i64 expert_layers() const { return experts ? layers - std::ssize(experts->dense_layers) : 0; }
  bool has_experts(i64 layer) const { return experts && !std::ranges::binary_search(experts->dense_layers, layer); }
  bool is_windowed(i64 layer) const { return !windowed.empty() && windowed[static_cast<size_t>(layer)]; }
  /// Returns full_attention for a layer to which it applies, otherwise null.
  const FullAttention* full_attention_of(i64 layer) const { return full_attention && !is_windowed(layer) ? &*full_attention : nullptr; }
  i64 kv_heads_of(i64 layer) const { return full_attention_of(layer) ? full_attention->kv_heads : kv_heads; }
  i64 head_dim_of(i64 layer) const { return full_attention_of(layer) ? full_attention->head_dim : head_dim; }
  bool shares_keys(i64 layer) const { return layer >= layers - shared_key_layers; }
  i64 mlp_width_of(i64 layer) const { return wide_shared_mlp && shares_keys(layer) ? 2 * mlp_width : mlp_width; }
  Mixer mixer_of(i64 layer) const { return mixers.empty() ? Mixer::attention : mixers[static_cast<size_t>(layer)]; }
  bool is_rotated(i64 layer) const { return unrotated.empty() || !unrotated[static_cast<size_t>(layer)]; }
};

}  // namespace spillway::models

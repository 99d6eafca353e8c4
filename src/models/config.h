// What a Hugging Face config.json says about a model, checked. Read by the command line, the planner and models::build; written beside
// exported weights so that any tool loads them. A value: thread-safe. A config.json is an untrusted input: every key is checked for type
// and range, and a feature that would change the numbers but is not built here is refused by its name, never ignored.
#pragma once
#include <algorithm>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/attention/attention.h"
#include "kernels/quantized/quantized.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace spillway::models {

/// GPT-2; decoders with rotary positions, RMS norms and gated MLPs (decoder.h); networks for images.
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
  phi3,
  olmo2,
  cifar_net,
  lenet,
  alexnet,
  vgg11,
  resnet
};

/// Of GPT-2's MLP (those of other families are gated).
enum class Activation { gelu_tanh, gelu_erf, relu };

/// How rotary wavelengths are stretched by `factor`. linear: all of them (Chen et al., arXiv:2306.15595). llama3: those beyond
/// original_positions / low_freq_factor, while those below original_positions / high_freq_factor are kept and those between blended. yarn
/// (Peng et al., arXiv:2309.00071): those that turn less than beta_slow times within original_positions, while those that turn more than
/// beta_fast times are kept; and what is turned is multiplied by attention_factor.
struct RopeScaling {
  double factor = 8, low_freq_factor = 1, high_freq_factor = 4;
  i64 original_positions = 8192;
  enum class Kind { llama3, linear, yarn } kind = Kind::llama3;
  double beta_fast = 32, beta_slow = 1, attention_factor = 1;
  bool whole_pairs = true;  // yarn's limits, in pairs of a head, are rounded outwards
  bool operator==(const RopeScaling&) const = default;
};

/// What is added to layers by low rank (nn::Lora), as PEFT says it.
struct LoraConfig {
  i64 rank = 8;
  double alpha = 8, dropout = 0;
  bool rank_stabilized = false;      // scaled by alpha / sqrt(rank) instead of alpha / rank
  std::vector<std::string> targets;  // names of modules, or their last parts; empty: all layers of products but the head
  bool operator==(const LoraConfig&) const = default;
};

/// Of a decoder's layers but some, whose MLP is a plain one: each token goes through `chosen` MLPs of `count`.
struct ExpertsConfig {
  i64 count = 8, chosen = 2, width = 0;  // width: of an expert's MLP
  bool normalised = true;                // a token's weights add up to 1
  std::vector<i64> dense_layers;         // ascending
  double balance = 0.001;                // of the loss that evens experts out
  bool evened_out = false;               // it is part of the loss that is trained
  bool operator==(const ExpertsConfig&) const = default;
};

/// Of a residual network (resnet.h).
struct ResNetConfig {
  std::vector<i64> widths, blocks;  // by stage: of its 3x3 convolutions, and residual blocks; each stage but the first halves the image
  bool bottleneck = false;          // 1x1, 3x3 and a four times as wide 1x1 convolution in a block; else 3x3 and 3x3
  bool large_stem = false;          // 7x7 of stride 2 and pooling, for photographs; else 3x3, for CIFAR

  bool operator==(const ResNetConfig&) const = default;
};

struct ModelConfig {
  Family family = Family::gpt2;
  i64 layers = 0, width = 0, heads = 0;
  i64 kv_heads = 0;                                  // divides heads; GPT-2: heads
  i64 head_dim = 0;                                  // GPT-2: width / heads
  i64 mlp_width = 0, positions = 0, vocabulary = 0;  // of images: 1, and the classes
  bool tied_head = true;                             // the head's weight is the token embedding
  double norm_eps = 1e-5, initializer_range = 0.02;
  double embedding_dropout = 0, residual_dropout = 0, attention_dropout = 0;  // shares dropped in training, [0, 1)
  std::optional<i64> begin_token, pad_token;
  std::vector<i64> end_tokens;
  std::optional<i64> padding_row;        // of the token embedding: gets no gradient from its use as input, as nn.Embedding's padding_idx
  Shape image_CHW;                       // of images, else of rank 0
  std::vector<std::string> class_names;  // of images: of each class, or none
  std::vector<i64> widths;               // of cifar_net and lenet: of their convolutions and hidden linear layers, four in all
  ResNetConfig resnet;
  // Who asks for the model says these, no config.json.
  kernels::AttentionLibrary attention = kernels::AttentionLibrary::own;
  std::optional<LoraConfig> lora;
  kernels::WeightFormat base_weights = kernels::WeightFormat::plain;  // of layers of products, experts among them, but heads and routers

  // GPT-2 only
  Activation activation = Activation::gelu_tanh;
  bool scale_attention = true;            // scores times 1/sqrt(head_dim)
  bool scale_attention_by_layer = false;  // and times 1/(layer + 1)

  // All but GPT-2
  bool attention_bias = false, mlp_bias = false;  // of all projections; Qwen2's are of queries, keys and values
  double rope_theta = 10000;
  std::optional<RopeScaling> rope_scaling;
  i64 rotary_dim = 0;                               // elements of a head that turn, the first ones; even; 0: all
  i64 window = 0;                                   // positions that a query of a windowed layer sees, its own among them
  std::vector<bool> windowed;                       // by layer; empty: none is
  std::optional<double> local_rope_theta;           // of windowed layers, whose wavelengths are not stretched then
  double query_scalar = 0;                          // scores are divided by its root; 0: head_dim
  double attention_softcap = 0, logit_softcap = 0;  // 0: none
  std::optional<ExpertsConfig> experts;

  bool operator==(const ModelConfig&) const = default;
  bool reads_images() const { return family >= Family::cifar_net; }
  i64 expert_layers() const { return experts ? layers - std::ssize(experts->dense_layers) : 0; }
  bool has_experts(i64 layer) const { return experts && !std::ranges::binary_search(experts->dense_layers, layer); }
  bool is_windowed(i64 layer) const { return !windowed.empty() && windowed[static_cast<size_t>(layer)]; }
};

/// Throws Error(usage) on images too small for the model.
void check_image_side(const ModelConfig& config);

/// Throws Error(data) "[config] FILE: `KEY`: expected …, got …"; `file` is for the message only.
ModelConfig parse_config(std::string_view json, const std::string& file);
/// Of the folder's config.json. Throws Error(data), also when there is none.
ModelConfig read_config(const std::filesystem::path& folder);
/// A config.json that transformers loads and parse_config reads back equal; `weights` is the element type saved beside it.
std::string to_json(const ModelConfig& config, DType weights = DType::f32);

}  // namespace spillway::models

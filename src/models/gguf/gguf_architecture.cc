#include "models/gguf/gguf_architecture.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <string_view>

#include "base/error.h"
#include "models/families/family.h"
#include "models/rotary.h"

namespace spillway::models {
namespace {

bool is_gemma(const ModelConfig& c) { return c.family == Family::gemma2 || c.family == Family::gemma3; }
bool is_llama(const ModelConfig& c) { return c.family == Family::llama || c.family == Family::mistral || c.family == Family::mixtral; }

const char* name_of(const ModelConfig& c) {
  switch (c.family) {
    case Family::gpt2:
      return "gpt2";
    case Family::llama:
    case Family::mistral:
    case Family::mixtral:
      return "llama";
    case Family::qwen2:
      return "qwen2";
    case Family::qwen3:
      return "qwen3";
    case Family::qwen3_moe:
      return "qwen3moe";
    case Family::gemma2:
      return "gemma2";
    case Family::gemma3:
      return "gemma3";
    case Family::phi3:
      return "phi3";
    case Family::olmo2:
      return "olmo2";
    default:
      return nullptr;
  }
}

void expect(bool holds, const char* expected, const std::string& got) {
  if (holds) return;
  throw Error(ErrorCode::usage, fmt::format("[export] --format gguf: expected {}, got {}: llama.cpp would compute other results; use "
                                            "--format hf, which writes the model unchanged",
                                            expected, got));
}

void check_gpt2(const ModelConfig& c) {
  expect(c.activation == Activation::gelu_tanh, "GPT-2 with gelu_new", "another activation function");
  expect(c.scale_attention && !c.scale_attention_by_layer, "GPT-2 whose attention scores are divided by the square root of the head width",
         "scale_attn_weights false or scale_attn_by_inverse_layer_idx true");
}

void check_gemma(const ModelConfig& c) {
  expect(c.tied_head, "Gemma with a tied head", "an untied head");
  expect(!c.attention_bias, "Gemma without attention_bias", "attention_bias true");
  expect(c.window > 0 && gguf_window_period(c) > 0,
         "Gemma whose layer_types repeat a period of sliding_attention layers that ends with one full_attention layer",
         "other layer_types");
  if (c.family == Family::gemma2) {
    expect(c.attention_softcap > 0 && c.logit_softcap > 0, "Gemma 2 with attn_logit_softcapping and final_logit_softcapping",
           "a model that lacks one or both");
  } else {
    expect(c.attention_softcap == 0 && c.logit_softcap == 0, "Gemma 3 without soft caps", "soft caps");
  }
}

void check_rope(const ModelConfig& c) {
  if (!c.rope_scaling) return;
  using Kind = RopeScaling::Kind;
  const RopeScaling& s = *c.rope_scaling;
  expect(s.kind != Kind::llama3 || is_llama(c), "rope_type llama3 only with Llama, Mistral or Mixtral",
         "rope_type llama3 with another model");
  expect(s.kind == Kind::linear || !is_gemma(c), "rope_type default or linear with Gemma", "another rope_type");
  expect(s.kind != Kind::longrope, "another rope_type than longrope", "longrope");
  expect(s.kind != Kind::yarn || s.whole_pairs, "rope_type yarn with truncate true", "truncate false");
}

// Names of modules in Hugging Face's models (`ours`) and in llama.cpp (`theirs`). The names of a layer's parts have no prefix
// "model.layers.N." or "transformer.h.N.".
struct Name {
  std::string_view ours, theirs;
};
constexpr std::array<Name, 22> kLayerNames{{{"input_layernorm", "attn_norm"},
                                            {"self_attn.q_proj", "attn_q"},
                                            {"self_attn.k_proj", "attn_k"},
                                            {"self_attn.v_proj", "attn_v"},
                                            {"self_attn.o_proj", "attn_output"},
                                            {"self_attn.qkv_proj", "attn_qkv"},
                                            {"self_attn.q_norm", "attn_q_norm"},
                                            {"self_attn.k_norm", "attn_k_norm"},
                                            {"pre_feedforward_layernorm", "ffn_norm"},
                                            {"post_feedforward_layernorm", "post_ffw_norm"},
                                            {"mlp.gate_proj", "ffn_gate"},
                                            {"mlp.up_proj", "ffn_up"},
                                            {"mlp.down_proj", "ffn_down"},
                                            {"mlp.gate_up_proj", "ffn_up"},
                                            {"mlp.gate", "ffn_gate_inp"},
                                            {"block_sparse_moe.gate", "ffn_gate_inp"},
                                            {"ln_1", "attn_norm"},
                                            {"attn.c_attn", "attn_qkv"},
                                            {"attn.c_proj", "attn_output"},
                                            {"ln_2", "ffn_norm"},
                                            {"mlp.c_fc", "ffn_up"},
                                            {"mlp.c_proj", "ffn_down"}}};
constexpr std::array<Name, 6> kWholeNames{{{"model.embed_tokens", "token_embd"},
                                           {"model.norm", "output_norm"},
                                           {"lm_head", "output"},
                                           {"transformer.wte", "token_embd"},
                                           {"transformer.wpe", "position_embd"},
                                           {"transformer.ln_f", "output_norm"}}};
constexpr std::array<Name, 6> kExpertNames{{{"gate_proj", "ffn_gate_exps"},
                                            {"up_proj", "ffn_up_exps"},
                                            {"down_proj", "ffn_down_exps"},
                                            {"w1", "ffn_gate_exps"},
                                            {"w3", "ffn_up_exps"},
                                            {"w2", "ffn_down_exps"}}};

template <size_t N>
std::optional<std::string> found(const std::array<Name, N>& names, std::string_view ours) {
  for (const Name& name : names) {
    if (name.ours == ours) return std::string(name.theirs);
  }
  return {};
}

// Returns llama.cpp's name for a module. `module` is a parameter's name without its last part, which is weight or bias in both programs.
std::string renamed(const ModelConfig& c, std::string_view module) {
  if (const auto whole = found(kWholeNames, module)) return *whole;
  const std::string_view prefix = c.family == Family::gpt2 ? "transformer.h." : "model.layers.";
  if (module.starts_with(prefix)) {
    const std::string_view rest = module.substr(prefix.size());
    const size_t dot = rest.find('.');
    const std::string block = fmt::format("blk.{}.", rest.substr(0, dot));
    const std::string_view inner = dot == rest.npos ? std::string_view() : rest.substr(dot + 1);
    if (inner == "post_attention_layernorm") return block + (is_gemma(c) || c.family == Family::olmo2 ? "post_attention_norm" : "ffn_norm");
    if (const auto name = found(kLayerNames, inner)) return block + *name;
    if (inner.find(".experts.") != inner.npos) {
      if (const auto name = found(kExpertNames, inner.substr(inner.rfind('.') + 1))) return block + *name;
    }
  }
  throw Error(ErrorCode::bug, fmt::format("[gguf] expected a parameter that has a GGUF name, got {}", module));
}

// Returns the factor by which queries are multiplied. llama.cpp assumes one scale of the attention scores for
// each family; the factor makes up for a different scale in the configuration. It is 1 for all published models.
double query_factor(const ModelConfig& c) {
  if (!is_gemma(c) || c.query_scalar <= 0) return 1;
  // the number of layers of the 27B model, by which llama.cpp recognises that model
  const i64 largest = c.family == Family::gemma2 ? 46 : 62;
  const auto divided = static_cast<double>(c.layers == largest ? c.width / c.heads : c.head_dim);
  return std::sqrt(divided / c.query_scalar);
}

GgufPart part_of(const ModelConfig& c, const nn::Parameter& p) {
  const size_t dot = p.name.rfind('.');
  const std::string_view module = std::string_view(p.name).substr(0, dot), kind = std::string_view(p.name).substr(dot);
  GgufPart part{.name = renamed(c, module) + std::string(kind), .parts = {&p}};
  const bool query = module.ends_with(".q_proj"), key = module.ends_with(".k_proj"), norm = part.name.ends_with("_norm.weight");
  if (is_llama(c) && (query || key)) part.order = GgufPart::Order::interleaved;
  if (c.family == Family::gpt2 && p.shape.rank() == 2 && part.name.starts_with("blk.")) part.order = GgufPart::Order::transposed;
  if (is_gemma(c) && norm) part.added = 1;
  if (c.family == Family::gemma2 && query) part.factor = query_factor(c);
  if (c.family == Family::gemma3 && module.ends_with(".q_norm")) part.factor = query_factor(c);
  part.always_f32 = p.shape.rank() < 2 || norm || part.name.ends_with("ffn_gate_inp.weight") || part.name.starts_with("position_embd");
  return part;
}

}  // namespace

std::vector<i64> GgufPart::extents() const {
  const Shape& shape = parts.front()->shape;
  std::vector<i64> all(shape.extents().rbegin(), shape.extents().rend());
  if (order == Order::transposed) std::swap(all[0], all[1]);
  if (name.find("_exps.") != name.npos) all.push_back(static_cast<i64>(parts.size()));
  return all;
}

const char* gguf_architecture(const ModelConfig& c) {
  const char* name = name_of(c);
  if (name == nullptr) {
    const std::string what = c.reads_images() ? "an image model" : fmt::format("a model of model_type {}", decoder_family(c.family).type);
    throw Error(ErrorCode::usage,
                fmt::format("[export] --format gguf: expected a language model that this program writes for llama.cpp, got "
                            "{}: use --format hf{}",
                            what, c.reads_images() ? " or onnx" : ""));
  }
  if (c.family == Family::gpt2) check_gpt2(c);
  if (is_gemma(c)) check_gemma(c);
  if (c.family == Family::qwen3 || c.family == Family::qwen3_moe || c.family == Family::olmo2)
    expect(!c.attention_bias, "this model without attention_bias", "attention_bias true");
  if (c.family == Family::qwen2 || c.family == Family::phi3 || c.family == Family::olmo2)
    expect(c.heads * c.head_dim == c.width, "the number of heads times the head width to equal the model's width",
           fmt::format("{} heads of width {} in a model of width {}", c.heads, c.head_dim, c.width));
  if (c.family == Family::qwen3_moe) {
    expect(c.experts->normalised, "a mixture of experts with norm_topk_prob true", "norm_topk_prob false");
    expect(c.experts->dense_layers.empty(), "experts in every layer", "layers without experts (mlp_only_layers, decoder_sparse_step)");
  }
  check_rope(c);
  return name;
}

std::vector<GgufPart> gguf_parts(const ModelConfig& c, const nn::Sequential& model) {
  std::vector<GgufPart> parts;
  std::map<std::string, size_t> by_name;
  for (const auto& p : model.parameters) {
    GgufPart part = part_of(c, *p);
    const auto [at, fresh] = by_name.emplace(part.name, parts.size());
    if (fresh) {
      parts.push_back(std::move(part));
    } else {
      parts[at->second].parts.push_back(p.get());
    }
  }
  // llama.cpp's OLMo 2 does not support a tied head, so the embedding is written twice.
  if (c.family == Family::olmo2 && c.tied_head) {
    parts.push_back(parts[by_name.at("token_embd.weight")]);
    parts.back().name = "output.weight";
  }
  return parts;
}

i64 gguf_window_period(const ModelConfig& c) {
  i64 period = 1;
  while (period <= c.layers && c.is_windowed(period - 1)) ++period;
  for (i64 i = 0; i < c.layers; ++i) {
    if (c.is_windowed(i) != (i % period < period - 1)) return 0;
  }
  return period;
}

std::vector<float> gguf_rope_factors(const ModelConfig& c) {
  std::vector<float> factors;
  if (!c.rope_scaling || c.rope_scaling->kind != RopeScaling::Kind::llama3) return factors;
  ModelConfig plain = c;
  plain.rope_scaling.reset();
  const Rotary scaled = rotary_of(c, 0), before = rotary_of(plain, 0);
  for (size_t i = 0; i < scaled.frequencies.size(); ++i)
    factors.push_back(static_cast<float>(before.frequencies[i] / scaled.frequencies[i]));
  return factors;
}

}  // namespace spillway::models

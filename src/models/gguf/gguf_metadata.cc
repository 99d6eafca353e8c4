#include "models/gguf/gguf_metadata.h"

#include <fmt/format.h>

#include <cmath>

#include "models/gguf/gguf_architecture.h"

namespace spillway::models {
namespace {

// Returns the value of general.file_type: llama.cpp's number for the element type that most tensors of a file have.
u32 file_type(GgufType weights) {
  switch (weights) {
    case GgufType::f32:
      return 0;
    case GgufType::f16:
      return 1;
    case GgufType::q8_0:
      return 7;
    case GgufType::bf16:
      return 32;
  }
  return 0;
}

// Adds metadata keys with the prefix of one architecture.
class Keys {
 public:
  Keys(const char* architecture, GgufMetadata& metadata) : prefix_(std::string(architecture) + "."), metadata_(metadata) {}
  void whole(const char* key, i64 value) { metadata_.add(prefix_ + key, static_cast<u32>(value)); }
  void real(const char* key, double value) { metadata_.add(prefix_ + key, static_cast<float>(value)); }
  void text(const char* key, const char* value) { metadata_.add(prefix_ + key, value); }

 private:
  std::string prefix_;
  GgufMetadata& metadata_;
};

void add_rope(const ModelConfig& c, Keys& keys) {
  if (c.family == Family::gpt2) return;
  keys.whole("rope.dimension_count", c.rotary_dim > 0 ? c.rotary_dim : c.head_dim);
  keys.real("rope.freq_base", c.rope_theta);
  if (c.local_rope_theta) keys.real("rope.freq_base_swa", *c.local_rope_theta);
  if (c.family == Family::phi3) keys.whole("rope.scaling.original_context_length", c.positions);
  if (!c.rope_scaling || c.rope_scaling->kind == RopeScaling::Kind::llama3) return;
  const RopeScaling& s = *c.rope_scaling;
  const bool yarn = s.kind == RopeScaling::Kind::yarn;
  keys.text("rope.scaling.type", yarn ? "yarn" : "linear");
  keys.real("rope.scaling.factor", s.factor);
  if (!yarn) return;
  if (c.family != Family::phi3) keys.whole("rope.scaling.original_context_length", s.original_positions);
  // llama.cpp multiplies the rotated elements by 0.1 ln(factor) + 1 and by
  // attn_factor, so attn_factor is attention_factor divided by 0.1 ln(factor) + 1.
  const double usual = s.factor > 1 ? 0.1 * std::log(s.factor) + 1 : 1;
  if (std::abs(s.attention_factor - usual) > 1e-9) keys.real("rope.scaling.attn_factor", s.attention_factor / usual);
  keys.real("rope.scaling.yarn_beta_fast", s.beta_fast);
  keys.real("rope.scaling.yarn_beta_slow", s.beta_slow);
}

void add_windows(const ModelConfig& c, Keys& keys, std::vector<std::string>& notes) {
  if (c.window == 0 || c.windowed.empty()) return;
  if (c.family == Family::gemma2 || c.family == Family::gemma3) {
    keys.whole("attention.sliding_window", c.window);
    keys.whole("attention.sliding_window_pattern", gguf_window_period(c));
    return;
  }
  if (c.window >= c.positions) return;
  notes.push_back(
      fmt::format("llama.cpp does not apply the sliding window of this model: in texts longer than {} tokens it attends to more tokens "
                  "than in training",
                  c.window));
}

}  // namespace

void add_gguf_config(const ModelConfig& c, const std::string& name, GgufType weights, GgufMetadata& metadata,
                     std::vector<std::string>& notes) {
  const char* architecture = gguf_architecture(c);
  metadata.add("general.architecture", architecture);
  metadata.add("general.type", "model");
  metadata.add("general.name", name);
  Keys keys(architecture, metadata);
  keys.whole("vocab_size", c.vocabulary);
  keys.whole("block_count", c.layers);
  keys.whole("context_length", c.positions);
  keys.whole("embedding_length", c.width);
  keys.whole("feed_forward_length", c.mlp_width);
  keys.whole("attention.head_count", c.heads);
  keys.whole("attention.head_count_kv", c.kv_heads);
  keys.whole("attention.key_length", c.head_dim);
  keys.whole("attention.value_length", c.head_dim);
  keys.real(c.family == Family::gpt2 ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon", c.norm_eps);
  if (c.experts) {
    keys.whole("expert_count", c.experts->count);
    keys.whole("expert_used_count", c.experts->chosen);
    keys.whole("expert_feed_forward_length", c.experts->width);
  }
  if (c.attention_softcap > 0) keys.real("attn_logit_softcapping", c.attention_softcap);
  if (c.logit_softcap > 0) keys.real("final_logit_softcapping", c.logit_softcap);
  add_rope(c, keys);
  add_windows(c, keys, notes);
  metadata.add("general.file_type", file_type(weights));
  metadata.add("general.quantization_version", u32{2});
}

}  // namespace spillway::models

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "models/config_parts.h"

namespace spillway::models {
namespace {

using nlohmann::json;

json or_null(const std::optional<i64>& token) { return token ? json(*token) : json(nullptr); }

// Returns the value of pad_token_id. If there is a padding row but no pad token, the row came from a negative pad_token_id.
json pad_token(const ModelConfig& c) { return c.padding_row && !c.pad_token ? json(*c.padding_row - c.vocabulary) : or_null(c.pad_token); }

json end_tokens(const std::vector<i64>& tokens) {
  if (tokens.empty()) return nullptr;
  return tokens.size() == 1 ? json(tokens.front()) : json(tokens);
}

const char* torch_name(DType t) {
  switch (t) {
    case DType::f32:
      return "float32";
    case DType::f64:
      return "float64";
    case DType::bf16:
      return "bfloat16";
    case DType::f16:
      return "float16";
    default:
      throw Error(ErrorCode::bug, "[config] expected a floating-point type for the weights, got " + std::string(to_string(t)));
  }
}

const char* activation_name(Activation activation) {
  switch (activation) {
    case Activation::gelu_tanh:
      return "gelu_new";
    case Activation::gelu_erf:
      return "gelu";
    case Activation::relu:
      return "relu";
  }
  return "?";
}

json gpt2_json(const ModelConfig& c) {
  return {{"architectures", {"GPT2LMHeadModel"}},
          {"model_type", "gpt2"},
          {"n_layer", c.layers},
          {"n_embd", c.width},
          {"n_head", c.heads},
          {"n_inner", c.mlp_width == 4 * c.width ? json(nullptr) : json(c.mlp_width)},
          {"n_positions", c.positions},
          {"layer_norm_epsilon", c.norm_eps},
          {"activation_function", activation_name(c.activation)},
          {"embd_pdrop", c.embedding_dropout},
          {"resid_pdrop", c.residual_dropout},
          {"attn_pdrop", c.attention_dropout},
          {"scale_attn_weights", c.scale_attention},
          {"scale_attn_by_inverse_layer_idx", c.scale_attention_by_layer}};
}

// Returns a JSON integer if x is whole, because transformers 5 rejects 256.0 where it expects a whole number.
json whole_if_it_is(double x) { return x == std::floor(x) ? json(static_cast<i64>(x)) : json(x); }

json rope_scaling_json(const RopeScaling& s) {
  using Kind = RopeScaling::Kind;
  if (s.kind == Kind::linear) return {{"rope_type", "linear"}, {"factor", s.factor}};
  if (s.kind == Kind::yarn) {
    return {{"rope_type", "yarn"},      {"factor", s.factor},       {"original_max_position_embeddings", s.original_positions},
            {"beta_fast", s.beta_fast}, {"beta_slow", s.beta_slow}, {"attention_factor", s.attention_factor},
            {"truncate", s.whole_pairs}};
  }
  return {{"rope_type", "llama3"},
          {"factor", s.factor},
          {"low_freq_factor", s.low_freq_factor},
          {"high_freq_factor", s.high_freq_factor},
          {"original_max_position_embeddings", s.original_positions}};
}

const char* architecture(Family family) {
  switch (family) {
    case Family::mistral:
      return "MistralForCausalLM";
    case Family::qwen2:
      return "Qwen2ForCausalLM";
    case Family::qwen3:
      return "Qwen3ForCausalLM";
    case Family::qwen3_moe:
      return "Qwen3MoeForCausalLM";
    case Family::mixtral:
      return "MixtralForCausalLM";
    case Family::gemma2:
      return "Gemma2ForCausalLM";
    case Family::gemma3:
      return "Gemma3ForCausalLM";
    case Family::phi3:
      return "Phi3ForCausalLM";
    case Family::olmo2:
      return "Olmo2ForCausalLM";
    default:
      return "LlamaForCausalLM";
  }
}

// Writes the rotary positions in both styles: transformers 5 reads `rope_parameters`; transformers 4 and most other tools read `rope_theta`
// and `rope_scaling`.
void add_rope(const ModelConfig& c, json& root) {
  json scaling = c.rope_scaling ? rope_scaling_json(*c.rope_scaling) : json(nullptr);
  json parameters = c.rope_scaling ? scaling : json{{"rope_type", "default"}};
  parameters["rope_theta"] = c.rope_theta;
  if (c.rotary_dim > 0) {
    const double share = static_cast<double>(c.rotary_dim) / static_cast<double>(c.head_dim);
    root["partial_rotary_factor"] = parameters["partial_rotary_factor"] = share;
  }
  if (c.local_rope_theta) {
    root["rope_local_base_freq"] = *c.local_rope_theta;
    parameters = {{"full_attention", std::move(parameters)},
                  {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", *c.local_rope_theta}}}};
  }
  root["rope_theta"] = c.rope_theta;
  root["rope_scaling"] = std::move(scaling);
  root["rope_parameters"] = std::move(parameters);
}

// Writes which layers have an attention window: as a list by layer for transformers 5,
// and as a rule for transformers 4 if one of transformers 4's rules can express the list.
void add_windows(const ModelConfig& c, json& root) {
  const bool gemma = c.family == Family::gemma2 || c.family == Family::gemma3,
             qwen = c.family == Family::qwen2 || c.family == Family::qwen3;
  if (!gemma && !qwen && !c.experts && c.family != Family::mistral && c.family != Family::phi3) return;
  root["sliding_window"] = c.window > 0 ? json(c.window) : json(nullptr);
  if (c.family == Family::qwen3_moe) root["use_sliding_window"] = c.window > 0;
  if (!gemma && !qwen) return;
  i64 first_windowed = c.layers, first_full = c.layers;
  for (i64 i = c.layers - 1; i >= 0; --i) {
    (c.is_windowed(i) ? first_windowed : first_full) = i;
    root["layer_types"].push_back(nullptr);
  }
  for (i64 i = 0; i < c.layers; ++i)
    root["layer_types"][static_cast<size_t>(i)] = c.is_windowed(i) ? "sliding_attention" : "full_attention";
  if (qwen) root["use_sliding_window"] = c.window > 0, root["max_window_layers"] = first_windowed;
  if (c.family == Family::gemma3) root["sliding_window_pattern"] = first_full + 1;
}

// Writes the number of experts under both names: for Qwen, transformers 4 reads `num_experts` and transformers 5 `num_local_experts`.
void add_experts(const ModelConfig& c, json& root) {
  const ExpertsConfig& experts = *c.experts;
  root["num_local_experts"] = experts.count;
  root["num_experts_per_tok"] = experts.chosen;
  root["router_aux_loss_coef"] = experts.balance;
  root["output_router_logits"] = experts.evened_out;
  if (c.family == Family::mixtral) {
    root["router_jitter_noise"] = 0.0;
    return;
  }
  root["num_experts"] = experts.count;
  root["moe_intermediate_size"] = experts.width;
  root["norm_topk_prob"] = experts.normalised;
  root["decoder_sparse_step"] = 1;
  root["mlp_only_layers"] = experts.dense_layers;
}

json decoder_json(const ModelConfig& c) {
  json root = {{"architectures", {architecture(c.family)}},
               {"model_type", decoder_type(c.family)},
               {"num_hidden_layers", c.layers},
               {"hidden_size", c.width},
               {"num_attention_heads", c.heads},
               {"num_key_value_heads", c.kv_heads},
               {"head_dim", c.head_dim},
               {"intermediate_size", c.mlp_width},
               {"max_position_embeddings", c.positions},
               {"rms_norm_eps", c.norm_eps},
               {"hidden_act", "silu"},
               {"attention_dropout", c.attention_dropout}};
  add_rope(c, root);
  add_windows(c, root);
  if (c.experts) add_experts(c, root);
  switch (c.family) {
    case Family::gemma2:
    case Family::gemma3: {
      const auto cap = [](double x) { return x > 0 ? json(x) : json(nullptr); };
      root.erase("hidden_act");
      root["hidden_activation"] = "gelu_pytorch_tanh";
      root["query_pre_attn_scalar"] = whole_if_it_is(c.query_scalar);
      root["attn_logit_softcapping"] = cap(c.attention_softcap);
      root["final_logit_softcapping"] = cap(c.logit_softcap);
      root["attention_bias"] = c.attention_bias;
      break;
    }
    case Family::phi3:
      root["embd_pdrop"] = root["resid_pdrop"] = 0.0;
      root["original_max_position_embeddings"] = c.positions;
      break;
    case Family::llama:
      root["mlp_bias"] = c.mlp_bias;
      [[fallthrough]];
    case Family::qwen3:
    case Family::qwen3_moe:
    case Family::olmo2:
      root["attention_bias"] = c.attention_bias;
      break;
    default:
      break;
  }
  return root;
}

}  // namespace

std::string to_json(const ModelConfig& c, DType weights) {
  if (c.reads_images()) {
    json root = image_model_json(c);
    root["dtype"] = torch_name(weights);
    return root.dump(2) + "\n";
  }
  json root = c.family == Family::gpt2 ? gpt2_json(c) : decoder_json(c);
  root["vocab_size"] = c.vocabulary;
  root["tie_word_embeddings"] = c.tied_head;
  root["initializer_range"] = c.initializer_range;
  root["bos_token_id"] = or_null(c.begin_token);
  root["eos_token_id"] = end_tokens(c.end_tokens);
  root["pad_token_id"] = pad_token(c);
  root["dtype"] = torch_name(weights);
  root["use_cache"] = true;
  return root.dump(2) + "\n";
}

}  // namespace spillway::models

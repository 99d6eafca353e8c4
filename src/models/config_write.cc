#include <nlohmann/json.hpp>

#include "base/error.h"
#include "models/config.h"

namespace spillway::models {
namespace {

using nlohmann::json;

json or_null(const std::optional<i64>& token) { return token ? json(*token) : json(nullptr); }

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
      throw Error(ErrorCode::bug, "[config] expected a floating type for the weights, got " + std::string(to_string(t)));
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

json rope_scaling_json(const RopeScaling& scaling) {
  return {{"rope_type", "llama3"},
          {"factor", scaling.factor},
          {"low_freq_factor", scaling.low_freq_factor},
          {"high_freq_factor", scaling.high_freq_factor},
          {"original_max_position_embeddings", scaling.original_positions}};
}

// Both styles: transformers 5 reads `rope_parameters`, 4 and most other tools read `rope_theta` and `rope_scaling`.
json llama_json(const ModelConfig& c) {
  json scaling = c.rope_scaling ? rope_scaling_json(*c.rope_scaling) : json(nullptr);
  json parameters = c.rope_scaling ? scaling : json{{"rope_type", "default"}};
  parameters["rope_theta"] = c.rope_theta;
  return {{"architectures", {"LlamaForCausalLM"}},
          {"model_type", "llama"},
          {"num_hidden_layers", c.layers},
          {"hidden_size", c.width},
          {"num_attention_heads", c.heads},
          {"num_key_value_heads", c.kv_heads},
          {"head_dim", c.head_dim},
          {"intermediate_size", c.mlp_width},
          {"max_position_embeddings", c.positions},
          {"rms_norm_eps", c.norm_eps},
          {"hidden_act", "silu"},
          {"attention_dropout", c.attention_dropout},
          {"attention_bias", c.attention_bias},
          {"mlp_bias", c.mlp_bias},
          {"rope_theta", c.rope_theta},
          {"rope_scaling", std::move(scaling)},
          {"rope_parameters", std::move(parameters)}};
}

json cifar_net_json(const ModelConfig& c) {
  return {
      {"architectures", {"CifarNet"}}, {"model_type", "cifar_net"}, {"num_labels", c.vocabulary}, {"image_size", 32}, {"num_channels", 3}};
}

}  // namespace

std::string to_json(const ModelConfig& c, DType weights) {
  if (c.family == Family::cifar_net) {
    json root = cifar_net_json(c);
    root["dtype"] = torch_name(weights);
    return root.dump(2) + "\n";
  }
  json root = c.family == Family::gpt2 ? gpt2_json(c) : llama_json(c);
  root["vocab_size"] = c.vocabulary;
  root["tie_word_embeddings"] = c.tied_head;
  root["initializer_range"] = c.initializer_range;
  root["bos_token_id"] = or_null(c.begin_token);
  root["eos_token_id"] = end_tokens(c.end_tokens);
  root["pad_token_id"] = or_null(c.pad_token);
  root["dtype"] = torch_name(weights);
  root["use_cache"] = true;
  return root.dump(2) + "\n";
}

}  // namespace spillway::models

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "models/config.h"
#include "models/families/family.h"
#include "models/image_families.h"

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

}  // namespace

std::string to_json(const ModelConfig& c, DType weights, bool in_mxfp4) {
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
  if (in_mxfp4) {
    root["quantization_config"] = {
        {"quant_method", "mxfp4"},
        {"modules_to_not_convert", {"model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"}}};
  }
  return root.dump(2) + "\n";
}

}  // namespace spillway::models

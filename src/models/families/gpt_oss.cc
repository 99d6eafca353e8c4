// gpt-oss (arXiv:2508.10925).
#include <numbers>

#include "models/families/all.h"
#include "models/families/config_parts.h"

namespace spillway::models {
namespace {

using nlohmann::json;

// transformers assumes these rotary positions if config.json has none.
RopeScaling usual_scaling() {
  RopeScaling scaling{.factor = 32, .original_positions = 4096, .kind = RopeScaling::Kind::yarn};
  scaling.whole_pairs = false;
  scaling.attention_factor = 1 + 0.5 * std::numbers::ln2;  // yarn's 0.1 ln(factor) + 1
  return scaling;
}

// Folders may store the experts' weights in MXFP4; the tensors themselves say so.
void check_quantization(const ConfigObject& object) {
  const json* value = object.find("quantization_config");
  if (value == nullptr) return;
  if (!value->is_object()) object.complain("quantization_config", "an object");
  const ConfigObject inner(*value, object.file(), "quantization_config.");
  if (inner.text("quant_method") != "mxfp4") inner.complain("quant_method", "mxfp4 (no other kind of quantized weights is supported)");
}

void read_gpt_oss(const ConfigObject& object, ModelConfig& config) {
  check_quantization(object);
  read_windows(object, config, window_of(object, 128), [](i64 layer) { return layer % 2 == 0; });
  ExpertsConfig experts = read_experts(object, config, {.count = 128, .chosen = 4});
  experts.width = config.mlp_width;
  experts.clamp =
      kernels::GluClamp{.slope = object.real("swiglu_alpha", 0, 1e6, 1.702), .limit = object.real("swiglu_limit", 0, 1e6, 7, true)};
  config.experts = experts;
  config.rope_scaling = usual_scaling();  // unless rope_scaling or rope_parameters say otherwise
}

void write_gpt_oss(const ModelConfig& c, json& root) {
  write_windows(c, root, 128);
  write_experts(c, root);
  const kernels::GluClamp& clamp = c.experts.value().clamp.value();
  root["swiglu_alpha"] = clamp.slope;
  root["swiglu_limit"] = clamp.limit;
}

constexpr DecoderPreset kPresets[] = {
    {"gpt-oss-20b",
     R"({"num_hidden_layers": 24, "hidden_size": 2880, "intermediate_size": 2880, "num_local_experts": 32, "eos_token_id": 200002,
         "pad_token_id": 199999})"},
    {"gpt-oss-120b",
     R"({"num_hidden_layers": 36, "hidden_size": 2880, "intermediate_size": 2880, "num_local_experts": 128, "eos_token_id": 200002,
         "pad_token_id": 199999})"}};

}  // namespace

constinit const DecoderFamily kGptOss{
    .family = Family::gpt_oss,
    .type = "gpt_oss",
    .architecture = "GptOssForCausalLM",
    .defaults = {.heads = 64,
                 .kv_heads = 8,
                 .head_dim = 64,
                 .positions = 131072,
                 .vocabulary = 201088,
                 .norm_eps = 1e-5,
                 .theta = 150000,
                 .attention_bias = true},
    .style = {.sinks = true, .experts = {.router = "router", .biases = true, .interleaved = true}},
    .features = {"num_experts", "num_local_experts", "sliding_window", "layer_types", "attention_bias", "quantization_config"},
    .read = read_gpt_oss,
    .write = write_gpt_oss,
    .presets = kPresets};

}  // namespace spillway::models

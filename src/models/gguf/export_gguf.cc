#include "models/gguf/export_gguf.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "models/gguf/gguf_metadata.h"
#include "models/gguf/gguf_stream.h"
#include "models/gguf/q8_0.h"

namespace spillway::models {
namespace {

GgufType wanted_type(const std::string& name) {
  if (name == "fp32") return GgufType::f32;
  if (name == "fp16") return GgufType::f16;
  if (name == "bf16") return GgufType::bf16;
  if (name == "q8_0") return GgufType::q8_0;
  throw Error(ErrorCode::usage, fmt::format("[export] expected --dtype fp32, fp16, bf16 or q8_0 with --format gguf, got `{}`", name));
}

GgufType stored_type(const PlainModel& model, const nn::Parameter& p) {
  return model.stored_dtype(p) == DType::bf16 ? GgufType::bf16 : GgufType::f16;
}

}  // namespace

GgufExport export_gguf(const PlainModel& model, const std::string& name, const GgufTokenizer& tokenizer, const std::filesystem::path& file,
                       const std::optional<std::string>& dtype) {
  const ModelConfig& config = model.config();
  gguf_architecture(config);
  GgufExport done;
  const std::vector<GgufPart> parts = gguf_parts(config, model.model());
  std::vector<GgufTensor> tensors;
  std::vector<std::string> broken;
  GgufType mostly = GgufType::f32;
  for (const GgufPart& part : parts) {
    GgufTensor tensor{part.name, GgufType::f32, part.extents()};
    if (!part.always_f32) {
      tensor.type = dtype ? wanted_type(*dtype) : stored_type(model, *part.parts.front());
      mostly = tensor.type;
      if (tensor.type == GgufType::q8_0 && tensor.extents[0] % kQ8Elems != 0) {
        broken.push_back(tensor.name);
        tensor.type = GgufType::f16;
      }
    }
    tensors.push_back(std::move(tensor));
  }
  if (!broken.empty()) {
    done.notes.push_back(
        fmt::format("{} of {} tensors are written as fp16, because their row length is not a multiple of {} elements; one of them is {}",
                    broken.size(), tensors.size(), kQ8Elems, broken.front()));
  }
  GgufMetadata metadata;
  add_gguf_config(config, name, mostly, metadata, done.notes);
  add_gguf_tokenizer(config, tokenizer, metadata, done.notes);
  const std::vector<float> factors = gguf_rope_factors(config);
  if (!factors.empty()) tensors.push_back({"rope_freqs.weight", GgufType::f32, {static_cast<i64>(factors.size())}});
  GgufWriter writer(file, metadata, tensors);
  for (size_t i = 0; i < parts.size(); ++i) write_gguf_tensor(parts[i], tensors[i].type, config.head_dim, model.weights(), writer, i);
  if (!factors.empty()) writer.write(parts.size(), 0, std::as_bytes(std::span(factors)));
  writer.finish();
  done.tensors = static_cast<i64>(tensors.size());
  return done;
}

}  // namespace spillway::models

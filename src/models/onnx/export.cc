#include "models/onnx/export.h"

#include "base/error.h"
#include "data/files/file.h"
#include "models/export/weight_bytes.h"
#include "models/onnx/models.h"

namespace spillway::models {
namespace {

DType dtype_of(const PlainModel& model, const std::optional<std::string>& wanted) {
  const DType dtype = wanted ? exported_dtype(*wanted) : model.stored_dtype(*model.model().parameters.front());
  if (dtype == DType::f16 || !wanted) return dtype == DType::f16 ? DType::f16 : DType::f32;
  if (dtype == DType::f32) return dtype;
  throw Error(ErrorCode::usage,
              "[--dtype] expected fp32 or fp16 for ONNX, got " + *wanted + ", which onnxruntime supports on few devices only");
}

}  // namespace

ExportResult export_onnx(const PlainModel& model, const std::filesystem::path& to, const std::optional<std::string>& dtype) {
  const DType type = dtype_of(model, dtype);
  onnx::Graph graph(model, type);
  if (model.config().reads_images()) {
    onnx::add_image_model(graph);
  } else if (model.config().family == Family::gpt2) {
    onnx::add_gpt2(graph);
  } else {
    onnx::add_decoder(graph);
  }
  graph.write(to);
  data::write_text(to / "config.json", to_json(model.config(), type));
  return {std::ssize(model.model().parameters), 2};
}

}  // namespace spillway::models

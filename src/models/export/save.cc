#include "models/export/save.h"

#include <fmt/format.h>

#include <cstring>
#include <map>

#include "base/error.h"
#include "data/files/beside.h"
#include "data/safetensors/safetensors.h"
#include "data/safetensors/wide.h"
#include "models/export/export_tensors.h"

namespace spillway::models {
namespace {

// The values of parameters that are in CPU memory, or have been copied there from a GPU.
class ResidentWeights final : public WeightSource {
 public:
  explicit ResidentWeights(const ExportTensor& tensor) {
    for (const auto& [parameter, part] : tensor.members) {
      const Tensor value = parameter->value();
      values_.emplace(parameter, value.device().is_cuda() ? to_host(value) : value);
    }
  }
  void read(const nn::Parameter& parameter, i64 begin, std::span<double> out) const override {
    const std::span<const std::byte> bytes = bytes_of(parameter, begin, std::ssize(out));
    data::widen_stored(bytes, parameter.dtype, out);
  }
  void read_as(const nn::Parameter& parameter, i64 begin, DType dtype, std::span<std::byte> out) const override {
    if (dtype != parameter.dtype) return WeightSource::read_as(parameter, begin, dtype, out);
    const auto bytes = bytes_of(parameter, begin, std::ssize(out) / size_of(dtype));
    std::memcpy(out.data(), bytes.data(), bytes.size());
  }

 private:
  std::span<const std::byte> bytes_of(const nn::Parameter& parameter, i64 begin, i64 elems) const {
    const i64 width = size_of(parameter.dtype);
    return {values_.at(&parameter).raw() + begin * width, static_cast<size_t>(elems * width)};
  }
  std::map<const nn::Parameter*, Tensor> values_;
};

}  // namespace

void save(const nn::Sequential& model, const std::filesystem::path& folder) {
  for (const auto& parameter : model.parameters) {
    if (!parameter->is_plain())
      throw Error(ErrorCode::usage, "[save] expected unquantized weights, got quantized weights of " + parameter->name);
  }
  const std::vector<ExportTensor> all = export_tensors(model, [](const nn::Parameter& p) { return first_place(p, p.dtype); });
  std::vector<data::TensorInfo> tensors;
  for (const ExportTensor& tensor : all) tensors.push_back({.name = tensor.name, .dtype = tensor.dtype, .shape = tensor.shape});
  std::error_code failed;
  std::filesystem::create_directories(folder, failed);
  if (failed) throw Error(ErrorCode::io, fmt::format("[save] the folder {} could not be created: {}", folder.string(), failed.message()));
  data::Beside beside(folder / "model.safetensors", data::Beside::Kind::file, data::Existing::overwrite);
  data::SafetensorsWriter writer(beside.path(), std::move(tensors));
  for (size_t i = 0; i < all.size(); ++i) {
    const ResidentWeights source(all[i]);
    write_tensor(source, all[i], [&](i64 offset, std::span<const std::byte> bytes) { writer.write(writer.tensors()[i], offset, bytes); });
  }
  writer.finish();
  beside.put_in_place();
}

}  // namespace spillway::models

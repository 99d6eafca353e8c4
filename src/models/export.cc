#include "models/export.h"

#include <fmt/format.h>

#include <array>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "data/file.h"
#include "models/lora.h"
#include "models/model.h"

namespace spillway::models {
namespace {

constexpr i64 kPiece = 4096;  // elements held at once

DType wanted_dtype(const std::string& name) {
  if (name == "fp32" || name == "f32") return DType::f32;
  if (name == "fp64" || name == "f64") return DType::f64;
  if (name == "bf16") return DType::bf16;
  if (name == "fp16") return DType::f16;
  throw Error(ErrorCode::usage, fmt::format("[export] expected --dtype fp32, fp64, bf16 or fp16, got `{}`", name));
}

template <class T, class Convert>
void convert(std::span<const double> from, std::byte* to, Convert&& one) {
  for (size_t i = 0; i < from.size(); ++i) {
    const T value = one(from[i]);
    std::memcpy(to + i * sizeof(T), &value, sizeof(T));
  }
}

void convert(std::span<const double> from, DType dtype, std::byte* to) {
  if (dtype == DType::bf16) return convert<BFloat16>(from, to, [](double x) { return narrow<BFloat16>(static_cast<float>(x)); });
  if (dtype == DType::f16) return convert<Float16>(from, to, [](double x) { return narrow<Float16>(static_cast<float>(x)); });
  if (dtype == DType::f64) return convert<double>(from, to, [](double x) { return x; });
  convert<float>(from, to, [](double x) { return static_cast<float>(x); });
}

void write_shard(const std::filesystem::path& path, const std::vector<std::pair<const nn::Parameter*, DType>>& members,
                 const WeightSource& source) {
  std::vector<data::TensorInfo> tensors;
  for (const auto& [p, dtype] : members) {
    data::TensorInfo info;
    info.name = is_adapter(*p) ? peft_name(*p) : p->name;
    info.dtype = dtype;
    info.shape = p->shape;
    tensors.push_back(info);
  }
  data::SafetensorsWriter writer(path, tensors, {{"format", "pt"}});
  std::array<double, kPiece> wide;
  std::array<std::byte, kPiece * 8> bytes;
  for (size_t n = 0; n < members.size(); ++n) {
    const auto& [p, dtype] = members[n];
    for (i64 at = 0; at < p->elems(); at += kPiece) {
      const auto count = static_cast<size_t>(std::min(kPiece, p->elems() - at));
      const std::span piece(wide.data(), count);
      source.read(*p, at, piece);
      convert(piece, dtype, bytes.data());
      writer.write(writer.tensors()[n], at * size_of(dtype),
                   std::span<const std::byte>(bytes).first(count * static_cast<size_t>(size_of(dtype))));
    }
  }
  writer.finish();
}

}  // namespace

ExportResult export_folder(const ModelConfig& config, const std::filesystem::path& from, const std::filesystem::path& to,
                           const std::optional<std::string>& dtype, i64 max_shard_bytes,
                           const std::optional<std::filesystem::path>& adapter, const std::optional<std::filesystem::path>& averages) {
  ModelConfig plain = config;
  plain.lora.reset();
  const nn::Sequential model = build(plain, DType::f32), adapted = adapter ? build(config, DType::f32) : nn::Sequential();
  const FolderWeights base(model, from);
  std::unique_ptr<WeightSource> source = std::make_unique<FolderWeights>(model, from);
  if (averages && !adapter) source = std::make_unique<AveragedWeights>(model, std::move(source), *averages);
  if (adapter) {
    std::unique_ptr<WeightSource> both =
        std::make_unique<AdaptedWeights>(std::move(source), std::make_unique<AdapterFolder>(adapted, *adapter));
    if (averages) both = std::make_unique<AveragedWeights>(adapted, std::move(both), *averages);
    source = std::make_unique<MergedWeights>(config, adapted, std::move(both));
  }
  std::vector<std::vector<std::pair<const nn::Parameter*, DType>>> shards(1);
  DType last = DType::f32;
  i64 filled = 0, total = 0;
  for (const auto& p : model.parameters) {
    last = dtype ? wanted_dtype(*dtype) : base.stored_dtype(*p);
    const i64 bytes = p->elems() * size_of(last);
    if (filled > 0 && filled + bytes > max_shard_bytes) {
      shards.emplace_back();
      filled = 0;
    }
    shards.back().emplace_back(p.get(), last);
    filled += bytes;
    total += bytes;
  }
  nlohmann::json index = {{"metadata", {{"total_size", total}}}, {"weight_map", nlohmann::json::object()}};
  for (size_t s = 0; s < shards.size(); ++s) {
    const std::string name =
        shards.size() == 1 ? "model.safetensors" : fmt::format("model-{:05}-of-{:05}.safetensors", s + 1, shards.size());
    write_shard(to / name, shards[s], *source);
    for (const auto& [p, t] : shards[s]) index["weight_map"][p->name] = name;
  }
  if (shards.size() > 1) data::write_text(to / "model.safetensors.index.json", index.dump(2) + "\n");
  data::write_text(to / "config.json", to_json(plain, last));
  return {static_cast<i64>(model.parameters.size()), static_cast<i64>(shards.size())};
}

ExportResult export_adapter(const ModelConfig& config, const std::filesystem::path& adapter, const std::string& base,
                            const std::filesystem::path& to, const std::optional<std::string>& dtype,
                            const std::optional<std::filesystem::path>& averages) {
  const nn::Sequential model = build(config, DType::f32);
  const AdapterFolder stored(model, adapter);
  std::unique_ptr<WeightSource> source = std::make_unique<AdapterFolder>(model, adapter);
  if (averages) source = std::make_unique<AveragedWeights>(model, std::move(source), *averages);
  std::vector<std::pair<const nn::Parameter*, DType>> members;
  for (const auto& p : model.parameters) {
    if (is_adapter(*p)) members.emplace_back(p.get(), dtype ? wanted_dtype(*dtype) : stored.stored_dtype(*p));
  }
  write_shard(to / kAdapterName, members, *source);
  data::write_text(to / kAdapterConfigName, adapter_json(config, adapted_modules(model), base));
  return {static_cast<i64>(members.size()), 1};
}

}  // namespace spillway::models

#include "models/export/folder.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "data/files/file.h"
#include "models/export/weight_bytes.h"
#include "models/lora.h"
#include "models/model.h"

namespace spillway::models {
namespace {

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
  for (size_t n = 0; n < members.size(); ++n) {
    const data::TensorInfo& tensor = writer.tensors()[n];
    write_bytes(source, *members[n].first, members[n].second,
                [&](i64 offset, std::span<const std::byte> bytes) { writer.write(tensor, offset, bytes); });
  }
  writer.finish();
}

}  // namespace

ExportResult export_folder(const PlainModel& plain, const std::filesystem::path& to, const std::optional<std::string>& dtype,
                           i64 max_shard_bytes) {
  std::vector<std::vector<std::pair<const nn::Parameter*, DType>>> shards(1);
  DType last = DType::f32;
  i64 filled = 0, total = 0;
  for (const auto& p : plain.model().parameters) {
    last = dtype ? exported_dtype(*dtype) : plain.stored_dtype(*p);
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
    write_shard(to / name, shards[s], plain.weights());
    for (const auto& [p, t] : shards[s]) index["weight_map"][p->name] = name;
  }
  if (shards.size() > 1) data::write_text(to / "model.safetensors.index.json", index.dump(2) + "\n");
  data::write_text(to / "config.json", to_json(plain.config(), last));
  return {static_cast<i64>(plain.model().parameters.size()), static_cast<i64>(shards.size())};
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
    if (is_adapter(*p)) members.emplace_back(p.get(), dtype ? exported_dtype(*dtype) : stored.stored_dtype(*p));
  }
  write_shard(to / kAdapterName, members, *source);
  data::write_text(to / kAdapterConfigName, adapter_json(config, adapted_modules(model), base));
  return {static_cast<i64>(members.size()), 1};
}

}  // namespace spillway::models

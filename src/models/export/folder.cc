#include "models/export/folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/units.h"
#include "data/files/file.h"
#include "models/export/export_tensors.h"
#include "models/lora.h"
#include "models/model.h"

namespace spillway::models {
namespace {

// A tensor of the export: one of the model's, or, if `copied` is set, a tensor that is copied unchanged from another folder.
struct Member {
  ExportTensor tensor;
  const data::WeightFolder* copied = nullptr;
};

void copy_tensor(const data::WeightFolder& folder, const data::TensorInfo& tensor, const WriteBytes& write) {
  const i64 width = size_of(tensor.dtype), bytes = tensor.bytes();
  std::vector<std::byte> piece(static_cast<size_t>(std::min<i64>(bytes, kMiB)));
  for (i64 at = 0; at < bytes; at += std::ssize(piece)) {
    const auto part = std::span(piece).first(static_cast<size_t>(std::min<i64>(bytes - at, std::ssize(piece))));
    folder.read_as(tensor.name, at / width, tensor.dtype, part);
    write(at, part);
  }
}

void write_shard(const std::filesystem::path& path, const std::vector<Member>& members, const WeightSource& source) {
  std::vector<data::TensorInfo> tensors;
  for (const auto& [tensor, copied] : members) std::ranges::copy(tensor.infos(), std::back_inserter(tensors));
  data::SafetensorsWriter writer(path, tensors, {{"format", "pt"}});
  size_t next = 0;
  for (const auto& [tensor, copied] : members) {
    const size_t first = next;
    next += tensor.infos().size();
    const auto writing = [&](size_t n) -> WriteBytes {
      return [&writer, n](i64 offset, std::span<const std::byte> bytes) { writer.write(writer.tensors()[n], offset, bytes); };
    };
    if (copied) {
      for (size_t n = first; n < next; ++n) copy_tensor(*copied, writer.tensors()[n], writing(n));
    } else if (tensor.scales.empty()) {
      write_tensor(source, tensor, writing(first));
    } else {
      write_mxfp4(source, tensor, writing(first), writing(first + 1));
    }
  }
  writer.finish();
}

// Returns the tensors of `whole` that are none of the model's.
std::vector<Member> copied_members(const FolderWeights& whole, const std::filesystem::path& folder) {
  std::vector<Member> members;
  for (const std::string& name : whole.others()) {
    const data::TensorInfo& info = *whole.tensors().find(name);
    if (!info.foreign.empty()) {
      throw Error(ErrorCode::data, fmt::format("[export] {}: expected tensors of types that can be copied, got {} of type {}",
                                               folder.string(), name, info.foreign));
    }
    members.push_back({{.name = name, .shape = info.shape, .dtype = info.dtype}, &whole.tensors()});
  }
  return members;
}

// Returns the form of the parameter that is a part of a tensor in MXFP4, or null.
const nn::StoredPart* mxfp4_part(const nn::Parameter& parameter) {
  const auto found = std::ranges::find_if(parameter.stored, [](const nn::StoredPart& part) { return !part.scales.empty(); });
  return found == parameter.stored.end() ? nullptr : &*found;
}

void require_mxfp4(const PlainModel& plain, bool is_whole) {
  if (!is_whole && std::ranges::any_of(plain.model().parameters, [](const auto& p) { return mxfp4_part(*p) != nullptr; })) return;
  throw Error(ErrorCode::usage,
              "[--dtype] expected a model whose folders have experts in MXFP4, which is gpt-oss with widths that are multiples of 32, got "
              "another model: give fp32, bf16 or fp16");
}

}  // namespace

ExportResult export_folder(const PlainModel& plain, const std::filesystem::path& to, const std::optional<std::string>& dtype,
                           i64 max_shard_bytes, const std::optional<std::filesystem::path>& whole_folder) {
  const bool in_mxfp4 = dtype == "mxfp4";
  if (in_mxfp4) require_mxfp4(plain, whole_folder.has_value());
  std::optional<FolderWeights> whole;
  if (whole_folder) whole.emplace(plain.model(), *whole_folder);
  std::vector<Member> members;
  for (ExportTensor& tensor : export_tensors(plain.model(), [&](const nn::Parameter& p) {
         const DType wanted = in_mxfp4 ? DType::bf16 : dtype ? exported_dtype(*dtype) : plain.stored_dtype(p);
         if (const nn::StoredPart* part = in_mxfp4 ? mxfp4_part(p) : nullptr) return ExportPlace{part->tensor, part, wanted};
         return whole ? ExportPlace{whole->stored_name(p), whole->stored_part(p), wanted} : first_place(p, wanted);
       }))
    members.push_back({std::move(tensor)});
  for (Member& member : members) {  // what the folder has in MXFP4 was not trained since
    const nn::StoredPart* stored = plain.stored().stored_part(*member.tensor.members.front().parameter);
    const bool both = !member.tensor.scales.empty() && stored != nullptr && !stored->scales.empty();
    if (both) member.copied = &plain.stored().tensors();
  }
  const DType last = members.back().tensor.dtype;
  if (whole) {
    for (Member& member : copied_members(*whole, *whole_folder)) members.push_back(std::move(member));
  }
  std::vector<std::vector<Member>> shards(1);
  i64 filled = 0, total = 0;
  for (Member& member : members) {
    const i64 bytes = member.tensor.bytes();
    if (filled > 0 && filled + bytes > max_shard_bytes) {
      shards.emplace_back();
      filled = 0;
    }
    shards.back().push_back(std::move(member));
    filled += bytes;
    total += bytes;
  }
  nlohmann::json index = {{"metadata", {{"total_size", total}}}, {"weight_map", nlohmann::json::object()}};
  for (size_t s = 0; s < shards.size(); ++s) {
    const std::string name =
        shards.size() == 1 ? "model.safetensors" : fmt::format("model-{:05}-of-{:05}.safetensors", s + 1, shards.size());
    write_shard(to / name, shards[s], plain.weights());
    for (const Member& member : shards[s]) {
      for (const data::TensorInfo& info : member.tensor.infos()) index["weight_map"][info.name] = name;
    }
  }
  if (shards.size() > 1) data::write_text(to / "model.safetensors.index.json", index.dump(2) + "\n");
  data::write_text(to / "config.json", whole ? config_text(*whole_folder) : to_json(plain.config(), last, in_mxfp4));
  return {std::ssize(members), std::ssize(shards)};
}

ExportResult export_adapter(const ModelConfig& config, const std::filesystem::path& adapter, const std::string& base,
                            const std::filesystem::path& to, const std::optional<std::string>& dtype,
                            const std::optional<std::filesystem::path>& averages) {
  const nn::Sequential model = build(config, DType::f32);
  const AdapterFolder stored(model, adapter);
  std::unique_ptr<WeightSource> source = std::make_unique<AdapterFolder>(model, adapter);
  if (averages) source = std::make_unique<AveragedWeights>(model, std::move(source), *averages);
  std::vector<Member> members;
  for (const auto& p : model.parameters) {
    if (!is_adapter(*p)) continue;
    const DType wanted = dtype ? exported_dtype(*dtype) : stored.stored_dtype(*p);
    members.push_back({{peft_name(*p), p->shape, wanted, {{p.get(), nullptr}}}});
  }
  write_shard(to / kAdapterName, members, *source);
  data::write_text(to / kAdapterConfigName, adapter_json(config, adapted_modules(model), base));
  return {static_cast<i64>(members.size()), 1};
}

}  // namespace spillway::models

#include "app/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "data/atomic_folder.h"
#include "data/safetensors.h"
#include "models/weights.h"

namespace spillway::app {
namespace {

namespace fs = std::filesystem;
using parallel::Group;
using parallel::Segment;
using parallel::TileRange;
using parallel::What;

constexpr const char* kMoments[] = {".exp_avg", ".exp_avg_sq"};

data::TensorInfo describe(const nn::Parameter& p, const std::string& suffix) {
  data::TensorInfo info;
  info.name = p.name + suffix;
  info.dtype = p.dtype;
  info.shape = p.shape;
  return info;
}

// Where part `part` of `parts` interleaved ones of group element e lies inside a span that begins at tile `first`.
i64 byte_of(i64 element, i64 first_tile, int part, int parts, i64 size) {
  const i64 tile = element / parallel::kTileElems;
  return ((tile - first_tile) * parts + part) * parallel::kTileElems * size + element % parallel::kTileElems * size;
}

// Calls body(parameter, part, first element, bytes of it in `span`) for every piece of every parameter in the tiles.
template <class Span, class Body>
void for_parts(const Group& group, TileRange range, Span span, int parts, i64 size, Body&& body) {
  for (i64 tile = range.begin; tile < range.end; ++tile) {
    const i64 from = tile * parallel::kTileElems;
    parallel::for_segments(group, from, from + parallel::kTileElems, [&](i64 begin, i64 end, const Segment* s) {
      for (int part = 0; s && part < parts; ++part) {
        body(s->parameter, part, begin - s->begin,
             span.subspan(static_cast<size_t>(byte_of(begin, range.begin, part, parts, size)), static_cast<size_t>((end - begin) * size)));
      }
    });
  }
}

void write_weights(const fs::path& path, const nn::Sequential& model, parallel::Rank& rank) {
  std::vector<data::TensorInfo> tensors;
  for (const auto& p : model.parameters) tensors.push_back(describe(*p, ""));
  data::SafetensorsWriter writer(path, tensors, {{"format", "pt"}});
  const i64 size = size_of(rank.plan().scheduling.dtype);
  for (const Group& g : rank.plan().layout.groups) {
    rank.state().scan(What::weights, g.id, [&](TileRange range, std::span<const std::byte> bytes) {
      for_parts(g, range, bytes, 1, size, [&](u32 parameter, int, i64 begin, std::span<const std::byte> piece) {
        writer.write(writer.tensors()[parameter], begin * size, piece);
      });
    });
  }
  writer.finish();
}

void write_state(const fs::path& path, const nn::Sequential& model, parallel::Rank& rank) {
  std::vector<data::TensorInfo> tensors;
  for (const auto& p : model.parameters) {
    for (const char* moment : kMoments) tensors.push_back(describe(*p, moment));
  }
  data::SafetensorsWriter writer(path, tensors);
  const i64 size = size_of(rank.plan().scheduling.dtype);
  for (const Group& g : rank.plan().layout.groups) {
    rank.state().scan(What::state, g.id, [&](TileRange range, std::span<const std::byte> bytes) {
      for_parts(g, range, bytes, 2, size, [&](u32 parameter, int part, i64 begin, std::span<const std::byte> piece) {
        writer.write(writer.tensors()[2 * parameter + static_cast<size_t>(part)], begin * size, piece);
      });
    });
  }
  writer.finish();
}

nlohmann::json read_manifest(const fs::path& checkpoint) {
  std::ifstream file(checkpoint / "manifest.json");
  const nlohmann::json manifest = nlohmann::json::parse(file, nullptr, false);
  if (manifest.is_discarded() || !manifest.is_object() || !manifest.contains("format") || !manifest["format"].is_number_integer()) {
    throw Error(ErrorCode::data,
                fmt::format("[checkpoint] expected a manifest.json in {}, but it is missing or unreadable", checkpoint.string()));
  }
  if (manifest["format"].get<i64>() > kCheckpointFormat) {
    throw Error(ErrorCode::data, fmt::format("[checkpoint] {} has format {}, this program reads up to {}: use a newer spillway",
                                             checkpoint.string(), manifest["format"].get<i64>(), kCheckpointFormat));
  }
  return manifest;
}

// Empty when it is not there.
std::string text_of(const nlohmann::json& manifest, const char* key) {
  const auto found = manifest.find(key);
  return found != manifest.end() && found->is_string() ? found->get<std::string>() : "";
}

i64 whole_number(const nlohmann::json& manifest, const char* key, const fs::path& checkpoint) {
  if (!manifest.contains(key) || !manifest[key].is_number_integer() || manifest[key].get<i64>() < 0) {
    throw Error(ErrorCode::data,
                fmt::format("[checkpoint] {}: expected `{}` to be a whole number from 0", (checkpoint / "manifest.json").string(), key));
  }
  return manifest[key].get<i64>();
}

}  // namespace

fs::path save_checkpoint(const fs::path& run, const Progress& progress, const models::ModelConfig& config, const nn::Sequential& model,
                         parallel::Rank& rank) {
  const fs::path final_path = run / "checkpoints" / fmt::format("step-{:08}", progress.step);
  data::AtomicFolder folder(final_path);
  write_weights(folder.path() / "model.safetensors", model, rank);
  write_state(folder.path() / "optimizer.safetensors", model, rank);
  folder.write_text("config.json", models::to_json(config, rank.plan().scheduling.dtype));
  const nlohmann::json manifest = {{"format", kCheckpointFormat}, {"step", progress.step},
                                   {"updates", progress.updates}, {"cursor", progress.cursor},
                                   {"tokens", progress.tokens},   {"dtype", to_string(rank.plan().scheduling.dtype)},
                                   {"loss_scale", 1.0},           {"made_with", progress.made_with}};
  folder.write_text("manifest.json", manifest.dump(2) + "\n");
  folder.commit();
  return final_path;
}

i64 checkpoint_bytes(const nn::Sequential& model, DType dtype) {
  constexpr i64 kHeaders = 1 << 20;
  i64 elems = 0;
  for (const auto& p : model.parameters) elems += p->elems();
  return 3 * elems * size_of(dtype) + kHeaders;
}

std::vector<fs::path> checkpoints(const fs::path& run) {
  std::vector<fs::path> found;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(run / "checkpoints", ignored)) {
    const std::string name = entry.path().filename().string();
    const bool whole = name.rfind("step-", 0) == 0 && name.find_first_not_of("0123456789", 5) == std::string::npos;
    if (whole && fs::exists(entry.path() / "manifest.json")) found.push_back(entry.path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

fs::path find_checkpoint(const fs::path& run, const std::string& which) {
  const std::vector<fs::path> all = checkpoints(run);
  if (all.empty()) throw Error(ErrorCode::data, fmt::format("[checkpoint] {} holds no complete checkpoint yet", run.string()));
  if (which == "last") return all.back();
  std::string names;
  for (const fs::path& c : all) {
    if (which == std::to_string(read_progress(c).step)) return c;
    names += " " + std::to_string(read_progress(c).step);
  }
  throw Error(ErrorCode::data, fmt::format("[checkpoint] {} has no checkpoint `{}`; there are:{}", run.string(), which, names));
}

Progress read_progress(const fs::path& checkpoint) {
  const nlohmann::json manifest = read_manifest(checkpoint);
  const auto number = [&](const char* key) { return whole_number(manifest, key, checkpoint); };
  return {number("step"), number("updates"), number("cursor"), number("tokens"), text_of(manifest, "made_with")};
}

void load_checkpoint(const fs::path& checkpoint, const nn::Sequential& model, parallel::Rank& rank) {
  const nlohmann::json manifest = read_manifest(checkpoint);
  const DType dtype = rank.plan().scheduling.dtype;
  if (text_of(manifest, "dtype") != to_string(dtype)) {
    throw Error(ErrorCode::usage, fmt::format("[checkpoint] {} was saved in {}, this run trains in {}: give the run's --precision",
                                              checkpoint.string(), text_of(manifest, "dtype"), to_string(dtype)));
  }
  const models::FolderWeights weights(model, checkpoint);
  rank.load([&](const nn::Parameter& p, i64 begin, std::span<double> out) { weights.read(p, begin, out); });
  const data::SafetensorsReader state(checkpoint / "optimizer.safetensors");
  std::vector<const data::TensorInfo*> moments;
  for (const auto& p : model.parameters) {
    for (const char* moment : kMoments) {
      const data::TensorInfo* info = state.find(p->name + moment);
      if (!info || !(info->shape == p->shape) || info->dtype != dtype) {
        throw Error(ErrorCode::data, fmt::format("[checkpoint] {}: expected {} of shape {} in {}, which is missing or different",
                                                 state.path().string(), p->name + moment, to_string(p->shape), to_string(dtype)));
      }
      moments.push_back(info);
    }
  }
  const i64 size = size_of(dtype);
  for (const Group& g : rank.plan().layout.groups) {
    rank.state().fill(What::state, g.id, [&](TileRange range, std::span<std::byte> bytes) {
      std::fill(bytes.begin(), bytes.end(), std::byte{0});
      for_parts(g, range, bytes, 2, size, [&](u32 parameter, int part, i64 begin, std::span<std::byte> piece) {
        state.read(*moments[2 * parameter + static_cast<size_t>(part)], begin * size, piece);
      });
    });
  }
}

void prune_checkpoints(const fs::path& run, i64 keep) {
  std::vector<fs::path> all = checkpoints(run);
  std::error_code ignored;
  for (i64 i = 0; i + keep < static_cast<i64>(all.size()); ++i) {
    const fs::path& old = all[static_cast<size_t>(i)];
    const fs::path doomed = old.string() + ".removed";  // a half-removed folder must not look whole
    fs::rename(old, doomed, ignored);
    fs::remove_all(doomed, ignored);
  }
}

}  // namespace spillway::app

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "data/files/atomic_folder.h"
#include "data/safetensors/safetensors.h"
#include "models/lora.h"
#include "trainer/checkpoints/adapters.h"
#include "trainer/checkpoints/checkpoint.h"
#include "trainer/checkpoints/checkpoint_tensors.h"
#include "trainer/checkpoints/mixture_json.h"
#include "trainer/checkpoints/tokenizer_files.h"

namespace spillway::trainer {
namespace {

namespace fs = std::filesystem;
using parallel::Group;
using parallel::kTileElems;
using parallel::Segment;
using parallel::TileRange;

data::TensorInfo describe(const Shape& shape, std::string name, DType dtype) {
  data::TensorInfo info;
  info.name = std::move(name);
  info.dtype = dtype;
  info.shape = shape;
  return info;
}

// Written counts the bytes that one rank, or all ranks together, wrote to the
// weights file and the optimizer file. It also holds the ChecksumSums of both files.
struct Written {
  i64 bytes = 0;
  std::vector<u32> weights, state;

  std::string text() const {
    std::string text;
    const auto append = [&](const auto& numbers) {
      text.append(reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof numbers[0]);
    };
    append(std::array{bytes});
    append(weights);
    append(state);
    return text;
  }
  // Adds what another rank wrote to the same files. `text` is the text() of that rank's Written.
  void add(std::string_view text) {
    require(text.size() == sizeof bytes + (weights.size() + state.size()) * sizeof(u32),
            "[checkpoint] another rank's checksums are for other files");
    const auto take = [&](auto number) {
      std::memcpy(&number, text.data(), sizeof number);
      text.remove_prefix(sizeof number);
      return number;
    };
    bytes += take(i64{});
    for (std::vector<u32>* sums : {&weights, &state}) {
      for (u32& sum : *sums) sum ^= take(u32{});
    }
  }
};

// Returns whether any value has an exponent of all ones, which means infinity or NaN.
template <class Bits>
bool any_not_finite(std::span<const std::byte> bytes, Bits exponent) {
  bool any = false;
  for (size_t at = 0; at + sizeof(Bits) <= bytes.size(); at += sizeof(Bits)) {
    Bits value;
    std::memcpy(&value, bytes.data() + at, sizeof value);
    any |= (value & exponent) == exponent;
  }
  return any;
}

bool any_not_finite(std::span<const std::byte> weights, DType dtype) {
  switch (dtype) {
    case DType::f32:
      return any_not_finite<u32>(weights, 0x7f800000);
    case DType::bf16:
      return any_not_finite<u16>(weights, 0x7f80);
    case DType::f16:
      return any_not_finite<u16>(weights, 0x7c00);
    case DType::f64:
      return any_not_finite<u64>(weights, 0x7ff0000000000000);
    default:
      return false;
  }
}

// Writer writes tiles (pieces of 16,384 elements) to the weights file and the optimizer file, in the order in which they arrive.
class Writer {
 public:
  using Mode = data::SafetensorsWriter::Mode;
  Writer(const fs::path& folder, const nn::Sequential& model, const parallel::Plan& plan, Mode mode)
      : layout_(plan.layout),
        scheduling_(plan.scheduling),
        format_(plan.scheduling.format),
        weights_name_(weights_name(model)),
        weights_(folder / weights_name_, weight_tensors(model), {{"format", "pt"}}, mode),
        state_(folder / kStateName, moment_tensors(model), {}, mode) {}

  // Writes the tiles of `range` that this rank has to save. If every rank holds the whole parameter group, each rank
  // saves only its shard. A weight that several pipeline stages share is saved by the ranks of the first of these stages.
  void write(u16 group, TileRange range, std::span<const std::byte> weights, std::span<const std::byte> state) {
    const TileRange own = parallel::intersection(range, scheduling_.sharding.own(layout_.groups[group]));
    const optim::StateFormat format = scheduling_.format_of(layout_.groups[group]);
    const i64 first = range.begin * kTileElems, size = size_of(format_.weight);
    if (own.count() == 0 || !layout_.owns(layout_.groups[group])) return;
    parallel::for_segments(layout_.groups[group], own.begin * kTileElems, own.end * kTileElems, [&](i64 begin, i64 end, const Segment* s) {
      if (!s) return;
      const Run run{format, weights.data(), state.data(), begin - first, end - first, begin - s->begin};
      check_finite(s->parameter, weights.subspan(static_cast<size_t>(run.begin * size), static_cast<size_t>((end - begin) * size)));
      if (const size_t of_weights = weights_of_[s->parameter]; of_weights != kNone) {
        weights_.write(weights_.tensors()[of_weights], run.at * size,
                       weights.subspan(static_cast<size_t>(run.begin * size), static_cast<size_t>((end - begin) * size)));
      }
      for (const auto& [number, part] : state.empty() ? Parts() : parts_of_[s->parameter]) {
        const auto& tensor = state_.tensors()[number];
        if (part == optim::StatePart::rows || part == optim::StatePart::columns) {
          write_factors(tensor, part == optim::StatePart::rows ? 0 : s->matrices.row_factors(), run);
          continue;
        }
        state_dtype(format_) == DType::f64 ? write_part<double>(tensor, part, run) : write_part<float>(tensor, part, run);
      }
    });
  }

  Written finish() {
    const i64 bytes = weights_.finish_part() + state_.finish_part();
    return {bytes, weights_.checksum_sums(), state_.checksum_sums()};
  }
  // Returns the checksums of both files. `all` describes the bytes that all ranks together wrote. Throws Error(bug) if bytes are missing.
  data::FolderChecksums checksums(const Written& all, const fs::path& folder) const {
    if (const i64 expected = weights_.data_bytes() + state_.data_bytes(); all.bytes != expected) {
      throw Error(ErrorCode::bug,
                  fmt::format("[checkpoint] {}: expected {} bytes of data, {} were written", folder.string(), expected, all.bytes));
    }
    data::FolderChecksums checksums;
    checksums.add(weights_name_, data::ChecksumSums::checksums(weights_.file_bytes(), all.weights));
    checksums.add(kStateName, data::ChecksumSums::checksums(state_.file_bytes(), all.state));
    return checksums;
  }

 private:
  // Run is a range of one parameter's elements in adjacent tiles (pieces of 16,384 elements).
  struct Run {
    const optim::StateFormat& format;
    const std::byte *weights, *state;  // bytes of the tiles, from the beginning of the first tile on
    i64 begin, end;                    // range of elements of the run, counted from the first element of its first tile
    i64 at;                            // index within the parameter of the element `begin`
  };

  // Throws Error(numbers) if trained weights are not finite, because a run that resumes from them can never have a finite loss.
  void check_finite(u32 parameter, std::span<const std::byte> weights) const {
    if (trained_[parameter].empty() || !any_not_finite(weights, format_.weight)) return;
    throw Error(ErrorCode::numbers,
                fmt::format("[checkpoint] expected finite weights, got some of {} that are infinite or NaN", trained_[parameter]));
  }

  // Lists the tensors of the weights file. For a model with adapters only the adapters are listed, because the base weights are not saved.
  std::vector<data::TensorInfo> weight_tensors(const nn::Sequential& model) {
    std::vector<data::TensorInfo> tensors;
    const bool adapters = models::has_adapters(model);
    for (const auto& p : model.parameters) {
      const bool saved = !adapters || models::is_adapter(*p);
      trained_.push_back(p->frozen || p->statistic ? "" : p->name);
      weights_of_.push_back(saved ? tensors.size() : kNone);
      if (saved) tensors.push_back(describe(p->shape, adapters ? models::peft_name(*p) : p->name, format_.weight));
    }
    return tensors;
  }
  std::vector<data::TensorInfo> moment_tensors(const nn::Sequential& model) {
    std::vector<data::TensorInfo> tensors;
    for (const auto& p : model.parameters) {
      parts_of_.emplace_back();
      for (const StateTensor& t : state_tensors(*p, format_)) {
        parts_of_.back().emplace_back(tensors.size(), t.part);
        tensors.push_back(describe(t.shape, p->name + t.suffix, state_dtype(format_)));
      }
    }
    return tensors;
  }

  template <class T>
  void write_part(const data::TensorInfo& tensor, optim::StatePart part, const Run& run) {
    T values[kTileElems];
    for (i64 begin = run.begin; begin < run.end;) {
      const i64 tile = begin / kTileElems, end = std::min(run.end, (tile + 1) * kTileElems);
      const std::span<T> some(values, static_cast<size_t>(end - begin));
      optim::read_part(run.format, part, run.weights + tile * run.format.weight_tile_bytes(),
                       run.state + tile * run.format.state_tile_bytes(), begin - tile * kTileElems, some);
      state_.write(tensor, (run.at + begin - run.begin) * static_cast<i64>(sizeof(T)), std::as_bytes(some));
      begin = end;
    }
  }

  // Writes Adafactor's row or column factors of a parameter. `tensor` holds the parameter's
  // factors from index `first` on. Only the factors that lie in the tiles of `run` are written.
  void write_factors(const data::TensorInfo& tensor, i64 first, const Run& run) {
    const i64 each = run.format.factors, last = first + tensor.shape.elems();
    for (i64 tile = run.begin / kTileElems; tile * kTileElems < run.end; ++tile) {
      const i64 here = (run.at + tile * kTileElems - run.begin) / kTileElems * each;
      const i64 begin = std::max(first, here), end = std::min(last, here + each);
      if (begin >= end) continue;
      std::vector<double> values(static_cast<size_t>(end - begin));
      optim::read_factors(run.format, run.state + tile * run.format.state_tile_bytes(), begin - here, values);
      const auto write = [&]<class T>(T) {
        const std::vector<T> numbers(values.begin(), values.end());
        state_.write(tensor, (begin - first) * static_cast<i64>(sizeof(T)), std::as_bytes(std::span(numbers)));
      };
      state_dtype(format_) == DType::f64 ? write(double()) : write(float());
    }
  }

  const parallel::Layout& layout_;
  const parallel::Scheduling scheduling_;
  const optim::StateFormat format_;
  static constexpr size_t kNone = ~size_t{0};
  std::vector<size_t> weights_of_;    // by parameter: index of its tensor in weights_, or kNone
  std::vector<std::string> trained_;  // by parameter: its name; empty for frozen parameters and running statistics
  using Parts = std::vector<std::pair<size_t, optim::StatePart>>;
  std::vector<Parts> parts_of_;  // by parameter: indices of its tensors in state_, and which part of the state each holds
  const char* const weights_name_;
  data::SafetensorsWriter weights_, state_;
};

// Writes the loss scale. For a run without dynamic loss scaling this is 1.
void put_loss_scale(nlohmann::json& to, const Progress& p) {
  to["loss_scale"] = p.loss_scale ? p.loss_scale->scale : 1.0;
  if (p.loss_scale) to["finite_steps"] = p.loss_scale->finite_steps;
}

// Gives a checkpoint the permissions of its run folder, so that exactly the users who may read the
// run may read its checkpoints. Errors are ignored, because some filesystems have no permissions.
void take_permissions(const fs::path& folder, const fs::path& run) {
  using fs::perms;
  constexpr perms kReading = perms::owner_read | perms::group_read | perms::others_read,
                  kWriting = perms::owner_write | perms::group_write | perms::others_write;
  const perms all = fs::status(run).permissions();
  std::error_code ignored;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    fs::permissions(entry.path(), entry.is_directory() ? all & perms::all : all & (kReading | kWriting), ignored);
  fs::permissions(folder, (all & perms::all) | (fs::status(folder).permissions() & perms::set_gid), ignored);
}

}  // namespace

fs::path checkpoint_path(const fs::path& run, i64 step) { return run / "checkpoints" / fmt::format("step-{:08}", step); }

struct CheckpointWriter::State {
  std::optional<data::AtomicFolder> whole;  // handle of the folder, with which the first rank commits it; empty on other ranks
  fs::path folder;
  fs::path run;  // the run folder; set on the first rank only
  std::string manifest;
  std::vector<std::pair<std::string, std::string>> texts;  // files beside the weights: name and contents
  std::optional<Writer> writer;
  Written written;
};

CheckpointWriter::CheckpointWriter(const fs::path& run, const Progress& progress, const ModelSource& source, const nn::Sequential& model,
                                   const parallel::Plan& plan)
    : state_(std::make_unique<State>()) {
  const DType dtype = plan.scheduling.format.weight;
  const bool adapters = models::has_adapters(model);
  state_->texts = model_files(source, source.tokenizer);
  if (adapters) {
    state_->texts.emplace_back(models::kAdapterConfigName,
                               models::adapter_json(source.config, models::adapted_modules(model), source.reference));
  } else if (!source.own) {
    state_->texts.emplace_back(kConfigName, models::to_json(source.config, dtype));
  }
  nlohmann::json manifest = {{"format", kCheckpointFormat},     {"step", progress.step},
                             {"updates", progress.updates},     {"cursor", progress.cursor},
                             {"tokens", progress.tokens},       {"dtype", to_string(dtype)},
                             {"made_with", progress.made_with}, {"schedule_steps", progress.schedule_steps},
                             {"data", progress.data},           {"rules", progress.rules}};
  put_loss_scale(manifest, progress);
  if (!progress.thawed.empty()) manifest["thawed"] = to_json(progress.thawed);
  if (progress.standing != Standing()) manifest[kStanding] = to_json(progress.standing);
  put_mixture(manifest, progress.mixture);
  if (adapters) {
    manifest[kBaseFingerprint] = fingerprint_of(*source.folder);
    if (source.config.base_weights != kernels::WeightFormat::plain) manifest[kBaseWeights] = to_string(source.config.base_weights);
  }
  if (source.own) manifest[kOwnModel] = source.name;
  if (source.whole) manifest[kWhole] = source.whole->string();
  state_->manifest = manifest.dump();
  state_->run = run;
  state_->folder = state_->whole.emplace(checkpoint_path(run, progress.step), data::Existing::replace).path();
  state_->writer.emplace(state_->folder, model, plan, Writer::Mode::created);
}

CheckpointWriter::CheckpointWriter(const fs::path& folder, const nn::Sequential& model, const parallel::Plan& plan)
    : state_(std::make_unique<State>()) {
  state_->folder = folder;
  state_->writer.emplace(folder, model, plan, Writer::Mode::joined);
}

CheckpointWriter::~CheckpointWriter() = default;

const fs::path& CheckpointWriter::folder() const { return state_->folder; }
std::string CheckpointWriter::written() const { return state_->written.text(); }

void CheckpointWriter::write(const parallel::Snapshot::Tiles& tiles) {
  tiles([&](u16 group, TileRange range, std::span<const std::byte> weights, std::span<const std::byte> state) {
    state_->writer->write(group, range, weights, state);
  });
  state_->written = state_->writer->finish();
}

void CheckpointWriter::commit(std::span<const std::string> written) {
  Written all = state_->written;
  all = {0, std::vector<u32>(all.weights.size()), std::vector<u32>(all.state.size())};
  for (const std::string& rank : written) all.add(rank);
  data::FolderChecksums checksums = state_->writer->checksums(all, state_->folder);
  for (const auto& [name, text] : state_->texts) {
    const auto bytes = std::as_bytes(std::span(text));
    data::ChecksumSums sums(std::ssize(bytes));
    sums.add(0, bytes);
    checksums.add(name, data::ChecksumSums::checksums(std::ssize(bytes), sums.sums()));
    state_->whole->write_text(name, text);
  }
  state_->whole->write_text(data::kManifestName, checksums.seal(state_->manifest));
  take_permissions(state_->folder, state_->run);
  state_->whole->commit();
}

i64 checkpoint_bytes(const nn::Sequential& model, const optim::StateFormat& format) {
  constexpr i64 kHeaders = 1 << 20;
  i64 bytes = kHeaders;
  const bool adapters = models::has_adapters(model);
  for (const auto& p : model.parameters) {
    const i64 weight = !adapters || models::is_adapter(*p) ? size_of(format.weight) : 0;
    bytes += p->elems() * weight;
    for (const StateTensor& t : state_tensors(*p, format)) bytes += t.shape.elems() * size_of(state_dtype(format));
  }
  return bytes;
}

}  // namespace spillway::trainer

#include "data/weights/zero_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "data/files/file.h"
#include "data/safetensors/element_count.h"
#include "data/weights/zero_model.h"
#include "data/weights/zero_optimizer.h"

namespace spillway::data {
namespace {

namespace fs = std::filesystem;
using Kind = PickleNode::Kind;

i64 rounded_up(i64 value, i64 to) { return (value + to - 1) / to * to; }

// A sequence of stored tensors, treated as one long array: their concatenation.
class Flat {
 public:
  void append(size_t tensor, i64 elems) {
    begins_.push_back(elems_);
    tensors_.push_back(tensor);
    elems_ = std::min(elems_ + elems, kMostElements);
  }
  i64 elems() const { return elems_; }
  // Finds the stored pieces that make up elements [begin, begin + elems) of the concatenation, and appends them to `into`. In the weight to
  // which these elements belong, they are elements [at, at + elems).
  void cut(i64 begin, i64 elems, i64 at, TensorPieces& into) const {
    const auto behind = std::ranges::upper_bound(begins_, begin) - begins_.begin();
    for (auto i = static_cast<size_t>(std::max<std::ptrdiff_t>(behind - 1, 0)); i < tensors_.size() && begins_[i] < begin + elems; ++i) {
      const i64 end = i + 1 < begins_.size() ? begins_[i + 1] : elems_;
      const i64 first = std::max(begin, begins_[i]), last = std::min(begin + elems, end);
      if (first < last) into.push_back({tensors_[i], first - begins_[i], last - first, at + first - begin});
    }
  }

 private:
  std::vector<size_t> tensors_;
  std::vector<i64> begins_;
  i64 elems_ = 0;
};

class PartsReader {
 public:
  explicit PartsReader(const fs::path& folder) : files_(zero_files(folder)), budget_("[deepspeed] " + files_.folder.string()) {
    parts_.folder = files_.folder;
  }

  ZeroParts read() {
    read_models();
    if (files_.parameters.empty()) {
      read_optimizers();
    } else {
      read_universal();
    }
    add_frozen();
    check_against_module();
    for (const auto& [other, name] : model_.shared) {
      const auto one = numbers_by_name_.find(name);
      if (one == numbers_by_name_.end() || numbers_by_name_.contains(other)) continue;
      ZeroWeight same = parts_.weights[one->second];
      same.info.name = other;
      add_weight(std::move(same));
    }
    return std::move(parts_);
  }

 private:
  [[noreturn]] void reject(const std::string& why) const { reject_zero(files_.folder, why); }

  // Opens a file and returns its index and its archive. The work of parsing its pickle is charged to the budget of the
  // PickleTree made from it. What is kept in memory from all files is charged to budget_, which grows with the files' sizes.
  std::pair<size_t, std::shared_ptr<const TorchArchive>> open(const fs::path& path) {
    const size_t file = parts_.tensors.archives->add(path);
    auto archive = parts_.tensors.archives->open(file);
    budget_.add_input(static_cast<u64>(archive->bytes()));
    return {file, std::move(archive)};
  }
  size_t add(size_t file, TorchTensor tensor) {
    budget_.hold(sizeof(parts_.tensors.tensors[0]) + (tensor.sizes.size() + tensor.strides.size()) * sizeof(i64));
    return parts_.tensors.add(file, std::move(tensor));
  }
  void add_weight(ZeroWeight weight) {
    charge(weight);
    if (!numbers_by_name_.emplace(weight.info.name, parts_.weights.size()).second)
      reject(fmt::format("two tensors have the name {}", in_quotes(weight.info.name)));
    parts_.weights.push_back(std::move(weight));
  }
  void charge(const ZeroWeight& weight) {
    u64 pieces = weight.values.size(), arrays = 0;
    for (const auto& [array, of] : weight.arrays) {
      pieces += of.size();
      arrays += array.size() + sizeof(std::pair<const std::string, TensorPieces>) + kMapNodeBytes;
    }
    budget_.hold(sizeof weight + weight.info.name.size() + pieces * sizeof(TensorPiece) + arrays);
  }

  // Reads the file "mp_rank_00_model_states.pt", or with ZeRO-3 the model-states file of each rank.
  void read_models() {
    for (const fs::path& path : files_.model_states) {
      const auto [file, archive] = open(path);
      ZeroModel model = zero_model(*archive);
      const bool first = path == files_.model_states.front();
      if (!first && model.steps != model_.steps)
        reject_zero(path, fmt::format("this file is from step {}, but {} is from step {}: expected files of one save", model.steps,
                                      files_.model_states.front().filename().string(), model_.steps));
      if (!first && model.frozen_values.size() != model_.frozen.size())
        reject_zero(path, "this file has another number of frozen parameters than the first rank's file: expected files of one save");
      if (first) model_ = std::move(model);
      std::vector<TorchTensor>& frozen = first ? model_.frozen_values : model.frozen_values;
      frozen_.resize(model_.frozen.size());
      for (size_t i = 0; i < frozen.size(); ++i) {
        if (frozen[i].dtype != model_.frozen_values[i].dtype || frozen[i].foreign != model_.frozen_values[i].foreign)
          reject_zero(path,
                      fmt::format("the frozen parameter {} has another type here than in the first rank's file: expected files of one save",
                                  in_quotes(model_.frozen[i].name)));
        frozen_[i].append(add(file, frozen[i]), frozen[i].elems);
      }
    }
    if (model_.groups.empty() && files_.parameters.empty())
      reject_zero(files_.model_states.front(),
                  "expected `param_shapes`, which DeepSpeed writes with ZeRO, got none: was the checkpoint saved without ZeRO?");
    parts_.standing.steps = model_.steps;
    parts_.standing.samples = model_.samples;
    parts_.standing.updates = model_.steps - std::min(model_.steps, model_.skipped);
    parts_.standing.version = model_.version;
    for (const NamedTensor& buffer : model_.buffers) {
      ZeroWeight weight{.info = buffer.tensor.info(buffer.name)};
      weight.values.push_back({add(kFirstModel, buffer.tensor), 0, buffer.tensor.elems, 0});
      add_weight(std::move(weight));
    }
  }

  // Adds the frozen parameters. Stages 1 and 2 store them whole in one file; stage 3 stores a part of each in every rank's file.
  void add_frozen() {
    for (size_t i = 0; i < model_.frozen.size(); ++i) {
      const NamedShape& shape = model_.frozen[i];
      if (frozen_[i].elems() < shape.elems)
        reject(fmt::format("the frozen parameter {} has {} elements, but the files hold only {}", in_quotes(shape.name), shape.elems,
                           frozen_[i].elems()));
      ZeroWeight weight{.info = shape.info(model_.frozen_values[i].dtype, model_.frozen_values[i].foreign)};
      frozen_[i].cut(0, shape.elems, 0, weight.values);
      add_weight(std::move(weight));
    }
  }

  // Compares the optimizer's fp32 weights with the model's own weights, which stages 1 and 2 also store,
  // unpartitioned. The model's weights must be the rounded fp32 weights. Three elements of each weight are compared.
  // If they differ, the files have a layout that this program does not know, or come from different saves.
  void check_against_module() {
    for (const ZeroWeight& weight : parts_.weights) {
      const auto own = model_.module.find(weight.info.name);
      const i64 elems = weight.info.shape.elems();
      if (own == model_.module.end() || own->second.elems != elems || elems == 0 || !weight.info.foreign.empty() ||
          !own->second.foreign.empty() || !is_floating(own->second.dtype) || !is_floating(weight.info.dtype))
        continue;
      for (const i64 at : {i64{0}, elems / 2, elems - 1}) {
        double full = 0, rounded = 0;
        parts_.tensors.read(weight.values, at, std::span(&full, 1));
        read_wide(*parts_.tensors.archives->open(kFirstModel), own->second, at, std::span(&rounded, 1));
        if (std::isfinite(full) && std::isfinite(rounded) && std::abs(full - rounded) > bound(own->second.dtype, full))
          reject(
              fmt::format("element {} of {} is {:.9g} in the optimizer's fp32 weights and {:.9g} in the model's weights: the files are not "
                          "from one save, or have a layout that this program does not know",
                          at, in_quotes(weight.info.name), full, rounded));
      }
    }
  }
  // Returns the difference that is allowed between an fp32 weight and the model's weight: two units in the last place of `dtype`, with an
  // absolute minimum for tiny values.
  static double bound(DType dtype, double value) {
    const double relative = dtype == DType::bf16 ? 0x1p-7 : dtype == DType::f16 ? 0x1p-9 : 0x1p-22;
    return relative * std::abs(value) + (dtype == DType::f16 ? 0x1p-23 : 0x1p-125);
  }

  void read_optimizers() {
    std::vector<ZeroOptimizer> ranks;
    for (const fs::path& path : files_.optimizer_states) {
      const auto [file, archive] = open(path);
      ranks.push_back(zero_optimizer(path, *archive));
      ZeroOptimizer& rank = ranks.back();
      const ZeroOptimizer& first = ranks.front();
      if (rank.ranks != std::ssize(files_.optimizer_states))
        reject_zero(path, fmt::format("the checkpoint was saved by {} data-parallel ranks, but there are {} files: is the copy complete?",
                                      rank.ranks, files_.optimizer_states.size()));
      if (rank.stage != first.stage || rank.updates != first.updates || rank.weights.size() != first.weights.size())
        reject_zero(path, "this file does not match the first rank's file: expected files of one save");
      for (auto* of : {&rank.weights}) numbers_.emplace_back(numbered(file, *of));
      rank_arrays_.emplace_back();
      for (auto& [array, tensors] : rank.arrays) rank_arrays_.back().emplace(array, numbered(file, tensors));
    }
    const ZeroOptimizer& first = ranks.front();
    parts_.standing.stage = first.stage;
    parts_.standing.ranks = first.ranks;
    parts_.standing.loss_scale = first.loss_scale;
    if (first.updates) parts_.standing.updates = *first.updates;
    first.stage == 3 ? lay_by_parameter(ranks) : lay_by_group(ranks);
  }
  std::vector<size_t> numbered(size_t file, std::vector<TorchTensor>& tensors) {
    std::vector<size_t> numbers;
    for (TorchTensor& tensor : tensors) numbers.push_back(add(file, std::move(tensor)));
    return numbers;
  }
  i64 elems(size_t tensor) const { return parts_.tensors.tensors[tensor].second.elems; }

  // Describes the weights of stages 1 and 2. In these stages the parameters of a group are
  // concatenated, and the result is cut into one partition per rank. Partitions may end in padding.
  void lay_by_group(const std::vector<ZeroOptimizer>& ranks) {
    if (ranks.front().weights.size() != model_.groups.size())
      reject(
          fmt::format("expected {} parameter groups in the optimizer's files, got {}", model_.groups.size(), ranks.front().weights.size()));
    for (size_t group = 0; group < model_.groups.size(); ++group) {
      const auto joined = [&](const auto& tensors_of) {
        Flat flat;
        for (size_t rank = 0; rank < ranks.size(); ++rank) {
          const std::vector<size_t>& tensors = tensors_of(rank);
          if (tensors.size() == model_.groups.size()) flat.append(tensors[group], elems(tensors[group]));
        }
        return flat;
      };
      const Flat values = joined([&](size_t rank) -> const auto& { return numbers_[rank]; });
      std::map<std::string, Flat> arrays;
      for (const auto& [array, unused] : rank_arrays_.front()) {
        static const std::vector<size_t> kNone;
        arrays.emplace(array, joined([&](size_t rank) -> const auto& {
                         const auto found = rank_arrays_[rank].find(array);
                         return found == rank_arrays_[rank].end() ? kNone : found->second;
                       }));
      }
      const std::vector<i64>& paddings = group < ranks.front().paddings.size() ? ranks.front().paddings[group] : std::vector<i64>();
      lay_group(model_.groups[group], paddings, values, arrays, 2 * std::ssize(ranks));
    }
  }
  void lay_group(const std::vector<NamedShape>& shapes, const std::vector<i64>& paddings, const Flat& values,
                 std::map<std::string, Flat>& arrays, i64 alignment) {
    i64 needed = 0;
    for (size_t i = 0; i < shapes.size(); ++i) {
      needed += shapes[i].elems + (i < paddings.size() ? paddings[i] : 0);
      if (needed > kMostElements) reject("the parameters have more elements than this program supports");
    }
    const i64 last =
        paddings.empty() || shapes.empty() ? needed : needed - (shapes.size() <= paddings.size() ? paddings[shapes.size() - 1] : 0);
    const auto fits = [&](const Flat& flat) {
      return flat.elems() >= last && rounded_up(flat.elems(), alignment) <= rounded_up(needed, alignment);
    };
    if (!fits(values))
      reject(fmt::format("the model's parameters have {} elements, but the optimizer's fp32 weights have {}: expected files of one save",
                         needed, values.elems()));
    std::erase_if(arrays, [&](const auto& array) { return !fits(array.second); });
    i64 offset = 0;
    for (size_t i = 0; i < shapes.size(); offset += shapes[i].elems + (i < paddings.size() ? paddings[i] : 0), ++i) {
      ZeroWeight weight{.info = shapes[i].info(DType::f32)};
      values.cut(offset, shapes[i].elems, 0, weight.values);
      for (const auto& [array, flat] : arrays) flat.cut(offset, shapes[i].elems, 0, weight.arrays[array]);
      add_weight(std::move(weight));
    }
  }

  // Describes the weights of stage 3. In this stage every rank has an equally large part of each
  // parameter. A rank stores its parts one after the other, in the order of the parameters.
  void lay_by_parameter(const std::vector<ZeroOptimizer>& ranks) {
    std::vector<NamedShape> shapes;
    for (std::vector<NamedShape>& group : model_.groups) std::ranges::move(group, std::back_inserter(shapes));
    const i64 count = std::ssize(ranks);
    i64 needed = 0;
    for (const NamedShape& shape : shapes) {
      needed += (shape.elems + count - 1) / count;
      if (needed > kMostElements) reject("the parameters have more elements than this program supports");
    }
    std::vector<Flat> values;
    std::vector<std::map<std::string, Flat>> arrays(ranks.size());
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      values.push_back(joined(numbers_[rank]));
      for (const auto& [array, tensors] : rank_arrays_[rank]) arrays[rank].emplace(array, joined(tensors));
      if (values.back().elems() != needed)
        reject_zero(files_.optimizer_states[rank],
                    fmt::format("each rank's part of the parameters has {} elements, but this file holds {}: expected files of one save",
                                needed, values.back().elems()));
    }
    std::erase_if(arrays.front(), [&](const auto& array) {
      return !std::ranges::all_of(arrays, [&](const auto& of) { return of.contains(array.first) && of.at(array.first).elems() == needed; });
    });
    i64 offset = 0;
    for (const NamedShape& shape : shapes) {
      ZeroWeight weight{.info = shape.info(DType::f32)};
      const i64 part = (shape.elems + count - 1) / count;
      const auto whole = [&](const auto& flat_of, TensorPieces& pieces) {
        for (i64 rank = 0; rank * part < shape.elems; ++rank)
          flat_of(static_cast<size_t>(rank)).cut(offset, std::min(part, shape.elems - rank * part), rank * part, pieces);
      };
      whole([&](size_t rank) -> const Flat& { return values[rank]; }, weight.values);
      for (const auto& [array, unused] : arrays.front())
        whole([&](size_t rank) -> const Flat& { return arrays[rank].at(array); }, weight.arrays[array]);
      offset += part;
      add_weight(std::move(weight));
    }
  }
  Flat joined(const std::vector<size_t>& tensors) const {
    Flat flat;
    for (const size_t tensor : tensors) flat.append(tensor, elems(tensor));
    return flat;
  }

  // Reads a universal checkpoint, which has one folder per parameter. A folder holds fp32.pt and one file for each array of the optimizer.
  void read_universal() {
    std::vector<fs::path> folders;
    for (const auto& entry : fs::directory_iterator(files_.parameters)) {
      if (entry.is_directory()) folders.push_back(entry.path());
    }
    std::ranges::sort(folders);
    if (folders.empty()) reject_zero(files_.parameters, "expected a folder for each parameter, got none");
    std::map<std::string_view, const NamedShape*> shapes;
    for (const std::vector<NamedShape>& group : model_.groups) {
      for (const NamedShape& shape : group) shapes.emplace(shape.name, &shape);
    }
    std::optional<i64> updates;
    for (const fs::path& folder : folders) {
      const auto values = universal_tensor(folder / "fp32.pt");
      if (!values) reject_zero(folder / "fp32.pt", "expected a floating-point tensor in this file, got none");
      const NamedShape shape = universal_shape(shapes, folder.filename().string(), values->second);
      const i64 elems = shape.elems, stored = values->second.elems;
      ZeroWeight weight{.info = shape.info(values->second.dtype)};
      weight.values.push_back({add(values->first, values->second), 0, elems, 0});
      for (const auto& entry : fs::directory_iterator(folder)) {
        const std::string name = entry.path().filename().string();
        if (!name.ends_with(".pt") || name == "fp32.pt") continue;
        const std::string array = name.substr(0, name.size() - 3);
        if (array == "step") {
          const std::optional<i64> step = universal_step(entry.path());
          if (updates && step && *updates != *step)
            reject_zero(entry.path(),
                        fmt::format("this file is from step {}, but others are from step {}: expected files of one save", *step, *updates));
          if (step) updates = step;
          continue;
        }
        auto tensor = universal_tensor(entry.path());
        if (!tensor || tensor->second.elems != stored) continue;
        weight.arrays[array].push_back({add(tensor->first, std::move(tensor->second)), 0, elems, 0});
      }
      add_weight(std::move(weight));
    }
    if (updates) parts_.standing.updates = *updates;
  }

  // Returns the shape of a parameter. If the stored tensor is flat (it may then end in padding), the shape is
  // the one that the model states record for the parameter. Otherwise it is the stored tensor's own shape.
  static NamedShape universal_shape(const std::map<std::string_view, const NamedShape*>& shapes, const std::string& name,
                                    const TorchTensor& tensor) {
    const auto shape = shapes.find(name);
    if (shape != shapes.end() && tensor.sizes.size() == 1 && shape->second->elems <= tensor.elems) return *shape->second;
    return {name, tensor.sizes, tensor.elems};
  }
  std::optional<std::pair<size_t, TorchTensor>> universal_tensor(const fs::path& path) {
    const auto [file, archive] = open(path);
    const TorchTree tree(*archive, belongs_to_deepspeed, kDeepSpeedCure);
    const PickleNode* parameter = tree.find(&tree.root(), "param");
    auto tensor = tree.tensor(parameter == nullptr ? tree.root() : *parameter, path.filename().string());
    if (!tensor || !is_floating(tensor->dtype) || !tensor->foreign.empty()) return {};
    return std::pair(file, std::move(*tensor));
  }
  std::optional<i64> universal_step(const fs::path& path) {
    const auto [file, archive] = open(path);
    const TorchTree tree(*archive, belongs_to_deepspeed, kDeepSpeedCure);
    return whole_number(tree, tree.root());
  }

  const ZeroFiles files_;
  ZeroParts parts_;
  ReadBudget budget_;
  std::map<std::string, size_t> numbers_by_name_;  // the index in parts_.weights of each weight, by its name
  ZeroModel model_;                                // the model states of the first rank
  std::vector<Flat> frozen_;
  // The index of the file that is opened first, which holds the first rank's model states.
  static constexpr size_t kFirstModel = 0;
  std::vector<std::vector<size_t>> numbers_;  // for each rank, the indices in parts_.tensors of its weights
  // The indices in parts_.tensors of what a rank holds of an array of
  // optimizer state: by rank, then by the name of the array, such as exp_avg.
  std::vector<std::map<std::string, std::vector<size_t>>> rank_arrays_;
};

}  // namespace

ZeroParts zero_parts(const fs::path& folder) { return PartsReader(folder).read(); }

}  // namespace spillway::data

#include "data/weights/zero_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "data/weights/zero_optimizer.h"

namespace spillway::data {
namespace {

namespace fs = std::filesystem;
using Kind = PickleNode::Kind;

constexpr i64 kMostElems = std::numeric_limits<i64>::max() / 64;  // of a group: sums of a few stay within 64 bits

i64 rounded_up(i64 value, i64 to) { return (value + to - 1) / to * to; }

// Tensors that lie behind each other.
class Flat {
 public:
  void append(size_t tensor, i64 elems) {
    begins_.push_back(elems_);
    tensors_.push_back(tensor);
    elems_ = std::min(elems_ + std::min(elems, kMostElems), kMostElems);
  }
  i64 elems() const { return elems_; }
  // [begin, begin + elems) of it, which are from `at` on of a weight.
  void cut(i64 begin, i64 elems, i64 at, ZeroPieces& into) const {
    for (size_t i = 0; i < tensors_.size(); ++i) {
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

struct NamedShape {
  std::string name;
  std::vector<i64> sizes;
  i64 elems = 0;
};

class Reader {
 public:
  explicit Reader(const fs::path& folder) : files_(zero_files(folder)) { parts_.folder = files_.folder; }

  ZeroParts read() {
    for (const fs::path& path : files_.model_states) read_model(path);
    if (files_.parameters.empty()) {
      read_optimizers();
    } else {
      read_universal();
    }
    for (const auto& [other, name] : shared_) {
      const auto one = std::ranges::find(parts_.weights, name, [](const ZeroWeight& weight) { return weight.info.name; });
      if (one == parts_.weights.end() || !names_.insert(other).second) continue;
      ZeroWeight same = *one;
      same.info.name = other;
      parts_.weights.push_back(std::move(same));
    }
    return std::move(parts_);
  }

 private:
  [[noreturn]] void reject(const std::string& why) const { reject_zero(files_.folder, why); }

  size_t add(size_t file, TorchTensor tensor) {
    parts_.tensors.emplace_back(file, std::move(tensor));
    return parts_.tensors.size() - 1;
  }
  void add_weight(ZeroWeight weight) {
    if (!names_.insert(weight.info.name).second) reject(fmt::format("it has two tensors {}", in_quotes(weight.info.name)));
    parts_.weights.push_back(std::move(weight));
  }

  // "mp_rank_00_model_states.pt", or that of a rank.
  void read_model(const fs::path& path) {
    const size_t file = parts_.archives->add(path);
    const auto archive = parts_.archives->open(file);
    const TorchTree tree(*archive, belongs_to_deepspeed, kDeepSpeedCure);
    const PickleNode* root = &tree.root();
    if (!tree.is_dictionary(*root)) reject_zero(path, "expected a dictionary, as DeepSpeed writes it");
    const auto count = [&](const char* key) {
      const PickleNode* node = tree.find(root, key);
      return node != nullptr && node->kind == Kind::integer && node->text.empty() ? std::max<i64>(node->integer, 0) : 0;
    };
    const bool first = path == files_.model_states.front();
    const i64 steps = count("global_steps");
    if (!first && steps != parts_.standing.steps)
      reject_zero(path, fmt::format("it is of step {}, and {} of step {}: expected the files of one save", steps,
                                    files_.model_states.front().filename().string(), parts_.standing.steps));
    read_frozen(tree, file, first);
    if (!first) return;
    parts_.standing.steps = steps;
    parts_.standing.samples = count("global_samples");
    parts_.standing.updates = steps - std::min(steps, count("skipped_steps"));
    if (const PickleNode* version = tree.find(root, "ds_version"); version != nullptr && version->kind == Kind::text)
      parts_.standing.version = version->text;
    read_shapes(tree, path);
    read_buffers(tree, file);
    const PickleNode* shared = tree.find(root, "shared_params");
    const auto pairs = shared == nullptr ? std::span<const PickleRef>() : tree.entries(*shared);
    for (size_t i = 0; i + 1 < pairs.size(); i += 2) {
      if (tree.at(pairs[i]).kind == Kind::text && tree.at(pairs[i + 1]).kind == Kind::text)
        shared_.emplace_back(tree.at(pairs[i]).text, tree.at(pairs[i + 1]).text);
    }
  }

  std::vector<NamedShape> shapes_in(const TorchTree& tree, const PickleNode& dictionary) const {
    std::vector<NamedShape> shapes;
    const auto entries = tree.entries(dictionary);
    for (size_t i = 0; i + 1 < entries.size(); i += 2) {
      const PickleNode& key = tree.at(entries[i]);
      if (key.kind != Kind::text) reject("expected the names of parameters in its param_shapes");
      NamedShape shape{key.text, tree.sizes(tree.at(entries[i + 1]), key.text), 1};
      for (const i64 size : shape.sizes) {
        if (__builtin_mul_overflow(shape.elems, size, &shape.elems) || shape.elems > kMostElems)
          reject(fmt::format("the shape of {} has too many elements", in_quotes(key.text)));
      }
      shapes.push_back(std::move(shape));
    }
    return shapes;
  }

  void read_shapes(const TorchTree& tree, const fs::path& path) {
    const PickleNode* shapes = tree.find(&tree.root(), "param_shapes");
    if (shapes != nullptr && shapes->kind == Kind::list) {
      for (const PickleRef group : shapes->items) groups_.push_back(shapes_in(tree, tree.at(group)));
    } else if (shapes != nullptr && tree.is_dictionary(*shapes)) {
      groups_.push_back(shapes_in(tree, *shapes));
    } else if (files_.parameters.empty()) {
      reject_zero(path, "expected `param_shapes`, which DeepSpeed writes with ZeRO: was it saved without?");
    }
  }

  // Batch norm's running statistics and their like, which lie whole in the first rank's file.
  void read_buffers(const TorchTree& tree, size_t file) {
    const PickleNode *names = tree.find(&tree.root(), "buffer_names"), *module = tree.find(&tree.root(), "module");
    if (names == nullptr || names->kind != Kind::list) return;
    for (const PickleRef ref : names->items) {
      const std::string& name = tree.at(ref).text;
      const PickleNode* node = tree.find(module, name);
      auto tensor = node == nullptr ? std::nullopt : tree.tensor(*node, name);
      if (tensor) add_whole(name, file, std::move(*tensor));
    }
  }
  void add_whole(const std::string& name, size_t file, TorchTensor tensor) {
    ZeroWeight weight{.info = tensor.info(name)};
    const i64 elems = tensor.elems;
    weight.values.push_back({add(file, std::move(tensor)), 0, elems, 0});
    add_weight(std::move(weight));
  }

  // Whole in the file of stages 1 and 2, a part of each in those of stage 3.
  void read_frozen(const TorchTree& tree, size_t file, bool first) {
    const PickleNode *shapes = tree.find(&tree.root(), "frozen_param_shapes"), *parts = tree.find(&tree.root(), "frozen_param_fragments");
    if (shapes == nullptr || parts == nullptr) return;
    if (first) frozen_shapes_ = shapes_in(tree, *shapes);
    frozen_.resize(frozen_shapes_.size());
    for (size_t i = 0; i < frozen_shapes_.size(); ++i) {
      const PickleNode* node = tree.find(parts, frozen_shapes_[i].name);
      auto tensor = node == nullptr ? std::nullopt : tree.tensor(*node, frozen_shapes_[i].name);
      if (!tensor) reject(fmt::format("it has no values of the frozen parameter {}", in_quotes(frozen_shapes_[i].name)));
      frozen_dtype_ = tensor->dtype;
      const i64 elems = tensor->elems;
      frozen_[i].append(add(file, std::move(*tensor)), elems);
    }
  }
  void add_frozen() {
    for (size_t i = 0; i < frozen_shapes_.size(); ++i) {
      const NamedShape& shape = frozen_shapes_[i];
      if (frozen_[i].elems() < shape.elems)
        reject(fmt::format("the frozen parameter {} has {} elements, of which there are {}", in_quotes(shape.name), shape.elems, frozen_[i].elems()));
      ZeroWeight weight{.info = info_of(shape, frozen_dtype_)};
      frozen_[i].cut(0, shape.elems, 0, weight.values);
      add_weight(std::move(weight));
    }
  }

  static TensorInfo info_of(const NamedShape& shape, DType dtype) {
    TorchTensor tensor;
    tensor.dtype = dtype;
    tensor.sizes = shape.sizes;
    tensor.elems = shape.elems;
    return tensor.info(shape.name);
  }

  void read_optimizers() {
    std::vector<ZeroOptimizer> ranks;
    for (const fs::path& path : files_.optimizer_states) {
      const size_t file = parts_.archives->add(path);
      ranks.push_back(zero_optimizer(path, *parts_.archives->open(file)));
      ZeroOptimizer& rank = ranks.back();
      const ZeroOptimizer& first = ranks.front();
      if (rank.ranks != std::ssize(files_.optimizer_states))
        reject_zero(path, fmt::format("it was saved by {} data-parallel ranks, of which there are {} files: is the copy whole?", rank.ranks,
                                      files_.optimizer_states.size()));
      if (rank.stage != first.stage || rank.updates != first.updates || rank.weights.size() != first.weights.size())
        reject_zero(path, "it does not belong to the first rank's file: expected the files of one save");
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
    add_frozen();
  }
  std::vector<size_t> numbered(size_t file, std::vector<TorchTensor>& tensors) {
    std::vector<size_t> numbers;
    for (TorchTensor& tensor : tensors) numbers.push_back(add(file, std::move(tensor)));
    return numbers;
  }
  i64 elems(size_t tensor) const { return parts_.tensors[tensor].second.elems; }

  // Stages 1 and 2: a group's parameters behind each other, in a partition a rank; the last ones of the partitions may be padding.
  void lay_by_group(const std::vector<ZeroOptimizer>& ranks) {
    if (ranks.front().weights.size() != groups_.size())
      reject(fmt::format("expected {} groups of parameters in its optimizer, got {}", groups_.size(), ranks.front().weights.size()));
    for (size_t group = 0; group < groups_.size(); ++group) {
      const auto joined = [&](const auto& tensors_of) {
        Flat flat;
        for (size_t rank = 0; rank < ranks.size(); ++rank) {
          const std::vector<size_t>& tensors = tensors_of(rank);
          if (tensors.size() == groups_.size()) flat.append(tensors[group], elems(tensors[group]));
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
      lay_group(groups_[group], paddings, values, arrays, 2 * std::ssize(ranks));
    }
  }
  void lay_group(const std::vector<NamedShape>& shapes, const std::vector<i64>& paddings, const Flat& values,
                 const std::map<std::string, Flat>& arrays, i64 alignment) {
    i64 needed = 0;
    for (size_t i = 0; i < shapes.size(); ++i) {
      needed += shapes[i].elems + (i < paddings.size() ? paddings[i] : 0);
      if (needed > kMostElems) reject("its parameters have too many elements");
    }
    const i64 last = paddings.empty() || shapes.empty() ? needed : needed - (shapes.size() <= paddings.size() ? paddings[shapes.size() - 1] : 0);
    const auto fits = [&](const Flat& flat) {
      return flat.elems() >= last && rounded_up(flat.elems(), alignment) <= rounded_up(needed, alignment);
    };
    if (!fits(values))
      reject(fmt::format("its parameters have {} elements, its optimizer's fp32 weights {}: expected the files of one save", needed, values.elems()));
    i64 offset = 0;
    for (size_t i = 0; i < shapes.size(); offset += shapes[i].elems + (i < paddings.size() ? paddings[i] : 0), ++i) {
      ZeroWeight weight{.info = info_of(shapes[i], DType::f32)};
      values.cut(offset, shapes[i].elems, 0, weight.values);
      for (const auto& [array, flat] : arrays) {
        if (fits(flat)) flat.cut(offset, shapes[i].elems, 0, weight.arrays[array]);
      }
      add_weight(std::move(weight));
    }
  }

  // Stage 3: of each parameter a part a rank, all of one size, behind those of the parameters before.
  void lay_by_parameter(const std::vector<ZeroOptimizer>& ranks) {
    std::vector<NamedShape> shapes;
    for (std::vector<NamedShape>& group : groups_) std::ranges::move(group, std::back_inserter(shapes));
    const i64 count = std::ssize(ranks);
    i64 needed = 0;
    for (const NamedShape& shape : shapes) {
      needed += (shape.elems + count - 1) / count;
      if (needed > kMostElems) reject("its parameters have too many elements");
    }
    std::vector<Flat> values;
    std::vector<std::map<std::string, Flat>> arrays(ranks.size());
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      values.push_back(joined(numbers_[rank]));
      for (const auto& [array, tensors] : rank_arrays_[rank]) arrays[rank].emplace(array, joined(tensors));
      if (values.back().elems() != needed)
        reject_zero(files_.optimizer_states[rank], fmt::format("a rank's part of the parameters has {} elements, it holds {}: expected the files "
                                                               "of one save", needed, values.back().elems()));
    }
    i64 offset = 0;
    for (const NamedShape& shape : shapes) {
      ZeroWeight weight{.info = info_of(shape, DType::f32)};
      const i64 part = (shape.elems + count - 1) / count;
      const auto whole = [&](const auto& flat_of, ZeroPieces& pieces) {
        for (i64 rank = 0; rank * part < shape.elems; ++rank)
          flat_of(static_cast<size_t>(rank)).cut(offset, std::min(part, shape.elems - rank * part), rank * part, pieces);
      };
      whole([&](size_t rank) -> const Flat& { return values[rank]; }, weight.values);
      for (const auto& [array, unused] : arrays.front()) {
        const bool everywhere = std::ranges::all_of(arrays, [&](const auto& of) { return of.contains(array) && of.at(array).elems() == needed; });
        if (everywhere) whole([&](size_t rank) -> const Flat& { return arrays[rank].at(array); }, weight.arrays[array]);
      }
      offset += part;
      add_weight(std::move(weight));
    }
  }
  Flat joined(const std::vector<size_t>& tensors) const {
    Flat flat;
    for (const size_t tensor : tensors) flat.append(tensor, elems(tensor));
    return flat;
  }

  // A folder a parameter: fp32.pt and a file an array.
  void read_universal() {
    std::vector<fs::path> folders;
    for (const auto& entry : fs::directory_iterator(files_.parameters)) {
      if (entry.is_directory()) folders.push_back(entry.path());
    }
    std::ranges::sort(folders);
    if (folders.empty()) reject_zero(files_.parameters, "expected a folder for each parameter, there is none");
    std::optional<i64> updates;
    for (const fs::path& folder : folders) {
      const auto values = universal_tensor(folder / "fp32.pt");
      if (!values) reject_zero(folder / "fp32.pt", "expected a tensor in it");
      ZeroWeight weight{.info = universal_info(folder.filename().string(), values->second)};
      const i64 elems = values->second.elems;
      weight.values.push_back({add(values->first, values->second), 0, elems, 0});
      for (const auto& entry : fs::directory_iterator(folder)) {
        const std::string name = entry.path().filename().string();
        if (!name.ends_with(".pt") || name == "fp32.pt") continue;
        const std::string array = name.substr(0, name.size() - 3);
        const size_t before = parts_.tensors.size();
        if (array == "step") {
          const std::optional<i64> step = universal_step(entry.path());
          if (updates && step && *updates != *step) reject_zero(entry.path(), fmt::format("it is of step {}, others of step {}", *step, *updates));
          if (step) updates = step;
          continue;
        }
        auto tensor = universal_tensor(entry.path());
        if (!tensor || tensor->second.elems != elems || before > kMostTensors) continue;
        weight.arrays[array].push_back({add(tensor->first, std::move(tensor->second)), 0, elems, 0});
      }
      add_weight(std::move(weight));
    }
    if (updates) parts_.standing.updates = *updates;
    add_frozen();
  }
  static constexpr size_t kMostTensors = size_t{1} << 22;

  // A flat one takes the shape that the parameter has.
  TensorInfo universal_info(const std::string& name, const TorchTensor& tensor) const {
    for (const std::vector<NamedShape>& group : groups_) {
      const auto shape = std::ranges::find(group, name, &NamedShape::name);
      if (shape != group.end() && shape->elems == tensor.elems) return info_of(*shape, tensor.dtype);
    }
    return tensor.info(name);
  }
  std::optional<std::pair<size_t, TorchTensor>> universal_tensor(const fs::path& path) {
    const size_t file = parts_.archives->add(path);
    const auto archive = parts_.archives->open(file);
    const TorchTree tree(*archive, belongs_to_deepspeed, kDeepSpeedCure);
    const PickleNode* parameter = tree.find(&tree.root(), "param");
    auto tensor = tree.tensor(parameter == nullptr ? tree.root() : *parameter, path.filename().string());
    if (!tensor || !is_floating(tensor->dtype) || !tensor->foreign.empty()) return {};
    return std::pair(file, std::move(*tensor));
  }
  std::optional<i64> universal_step(const fs::path& path) {
    const size_t file = parts_.archives->add(path);
    const auto archive = parts_.archives->open(file);
    const TorchTree tree(*archive, belongs_to_deepspeed, kDeepSpeedCure);
    return whole_number(tree, tree.root());
  }

  const ZeroFiles files_;
  ZeroParts parts_;
  std::set<std::string> names_;
  std::vector<std::vector<NamedShape>> groups_;
  std::vector<std::pair<std::string, std::string>> shared_;
  std::vector<NamedShape> frozen_shapes_;
  std::vector<Flat> frozen_;
  DType frozen_dtype_ = DType::f32;
  std::vector<std::vector<size_t>> numbers_;                               // by rank: its tensors of weights
  std::vector<std::map<std::string, std::vector<size_t>>> rank_arrays_;  // by rank
};

}  // namespace

ZeroParts zero_parts(const fs::path& folder) { return Reader(folder).read(); }

}  // namespace spillway::data

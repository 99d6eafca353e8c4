#include "data/loader/own_samples.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace spillway::data {
namespace {

class OwnSamples final : public Samples {
 public:
  OwnSamples(std::shared_ptr<const TensorSource> source, std::vector<InputShape> inputs)
      : source_(std::move(source)), inputs_(std::move(inputs)) {
    require(source_ != nullptr, "[data] expected a source of samples, got a null pointer");
    if (inputs_.empty())
      throw Error(ErrorCode::usage, "[data] expected a model with named inputs, got no input: name them in Sequential::inputs");
    for (auto input = inputs_.begin(); input != inputs_.end(); ++input) {
      if (std::find_if(inputs_.begin(), input, [&](const InputShape& other) { return other.name == input->name; }) != input)
        throw Error(ErrorCode::usage, fmt::format("[data] expected inputs of different names, got `{}` twice", input->name));
    }
  }

  std::vector<i64> counts() const override { return {source_->samples()}; }
  i64 targets() const override { return source_->most_targets(); }
  bool is_stream() const override { return source_->is_stream(); }
  MicroBatch batch(i64 rows) const override { return empty_batch(inputs_, rows); }

  RowTokens read(size_t, i64 sample, MicroBatch& batch, i64 row) const override {
    std::vector<Tensor> views;
    for (const Tensor& input : batch.inputs) {
      views.push_back(input.slice(0, row, row + 1).reshape(inputs_[views.size()].shape));
      std::memset(views.back().raw(), 0, static_cast<size_t>(views.back().bytes()));
    }
    source_->read_row(sample, batch.first_sample + row, views);
    mark(batch, row, true);
    return {1, source_->targets(views)};
  }

  void leave_out(MicroBatch& batch, i64 row) const override {
    for (const Tensor& input : batch.inputs) {
      const Tensor one = input.slice(0, row, row + 1);
      std::memset(one.raw(), 0, static_cast<size_t>(one.bytes()));
    }
    mark(batch, row, false);
  }

  std::string too_few(const std::string& kind) const override {
    return fmt::format(
        "the data has no {} sample: the source has {} in all; give the source more samples, or choose a smaller validation fraction", kind,
        source_->samples());
  }

 private:
  static void mark(MicroBatch& batch, i64 row, bool holds_sample) {
    batch.targets_BT.span<i32>()[static_cast<size_t>(row)] = holds_sample ? 0 : kPaddingTarget;
    batch.row_mask_B.span<u8>()[static_cast<size_t>(row)] = holds_sample;
  }

  const std::shared_ptr<const TensorSource> source_;
  const std::vector<InputShape> inputs_;
};

}  // namespace

std::unique_ptr<Samples> samples_of(std::shared_ptr<const TensorSource> source, std::vector<InputShape> inputs) {
  return std::make_unique<OwnSamples>(std::move(source), std::move(inputs));
}

}  // namespace spillway::data

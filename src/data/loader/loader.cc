#include "data/loader/loader.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <cmath>

#include "base/crc32c.h"
#include "base/error.h"

namespace spillway::data {
namespace {

// Returns how many of a source's windows are validation data: the given fraction of `windows`, rounded to the nearest integer. If the
// fraction lies strictly between 0 and 1 and there are at least two windows, at least one is validation data and at least one is training
// data.
i64 held_out_windows(i64 windows, double fraction) {
  if (fraction <= 0) return 0;
  if (fraction >= 1) return windows;
  if (windows < 2) return 0;
  return std::clamp(static_cast<i64>(std::nearbyint(static_cast<double>(windows) * fraction)), i64{1}, windows - 1);
}

void at_least_one(i64 value, const char* flag) {
  if (value < 1) throw Error(ErrorCode::usage, fmt::format("[loader] expected {} of at least 1, got {}", flag, value));
}

void check_sequence(const LoaderOptions& o) { at_least_one(o.sequence_length, "--sequence-length"); }

void check_options(const LoaderOptions& o) {
  at_least_one(o.micro_batch_size, "--micro-batch-size");
  at_least_one(o.micro_batches, "--gradient-accumulation-steps");
  require(o.ranks >= 1 && o.rank >= 0 && o.rank < o.ranks, "[loader] expected a rank from 0 to ranks - 1");
  if (!(o.validation_fraction >= 0 && o.validation_fraction <= 1)) {
    throw Error(ErrorCode::usage, fmt::format("[loader] expected --validation-fraction from 0 to 1, got {}", o.validation_fraction));
  }
}

void check_weights(const std::vector<double>& weights, size_t sources) {
  require(weights.empty() || weights.size() == sources, "[loader] expected one weight for each source of the mixture");
  for (const double w : weights) {
    if (!(w > 0 && std::isfinite(w))) throw Error(ErrorCode::usage, fmt::format("[loader] expected source weights above 0, got {}", w));
  }
}

// Returns times · decimal / over as an integer, rounded up if `up` is set and down otherwise. `decimal` is taken as the shortest decimal
// number that reads back as this double, which is what the user wrote. `times` and `over` are at least 1.
i64 product(double decimal, i64 times, i64 over, bool up) {
  __extension__ typedef unsigned __int128 u128;
  constexpr u128 kMost = u128{1} << 62, kBeyond = u128{1} << 120;
  std::array<char, 40> text{};  // the text is filled with zeros, so that atoi stops at the end of the exponent
  char* end = std::to_chars(text.data(), text.data() + text.size(), decimal, std::chars_format::scientific).ptr;
  const char* exponent = std::find(text.data(), end, 'e');
  u128 digits = 0;  // the significant digits of `decimal` as an integer of at most 17 digits
  int tens = std::atoi(exponent + 1);
  for (const char* at = text.data(); at < exponent; ++at) {
    if (*at == '.') continue;
    digits = digits * 10 + static_cast<u128>(*at - '0');
    tens -= at > text.data();
  }
  // The numerator of the quotient; it is less than 10^17 · 2^63 < 2^120, so it fits into 128 bits.
  u128 above = digits * static_cast<u128>(times), below = static_cast<u128>(over);
  for (; tens > 0 && above / below < kMost; --tens) above *= 10;
  // once the denominator exceeds kBeyond, the quotient is below 1, so the loop can stop
  for (; tens < 0 && below < kBeyond; ++tens) below *= 10;
  const u128 whole = above / below + (up && above % below != 0 ? 1 : 0);
  if (whole >= kMost)
    throw Error(ErrorCode::usage, fmt::format("[--epochs] expected epochs of fewer than 2^62 steps in all, got {} epochs", decimal));
  return static_cast<i64>(whole);
}

template <class Ranges>
i64 total(const Ranges& ranges) {
  i64 windows = 0;
  for (const auto& range : ranges) windows += range.windows;
  return windows;
}

}  // namespace

Loader::Loader(const std::vector<std::unique_ptr<TokenSource>>& sources, const LoaderOptions& options)
    : Loader((check_sequence(options), windows_of(sources, options.sequence_length)), options) {}

Loader::Loader(std::unique_ptr<const Samples> samples, const LoaderOptions& options)
    : samples_(std::move(samples)), workers_(std::make_unique<ThreadPool>(options.workers)), options_(options) {
  check_options(options_);
  const std::vector<i64> counts = samples_->counts();
  for (size_t s = 0; s < counts.size(); ++s) {
    const i64 held_out = held_out_windows(counts[s], options_.validation_fraction), training = counts[s] - held_out;
    if (training > 0) training_.push_back({s, 0, training});
    if (held_out > 0) held_out_.push_back({s, training, held_out});
  }
  const bool only_validation = options_.validation_fraction == 1;
  if (total(only_validation ? held_out_ : training_) == 0)
    throw Error(ErrorCode::usage, "[loader] " + samples_->too_few(only_validation ? "validation" : "training"));
  check_weights(options_.weights, counts.size());
  if (only_validation) return;
  if (options_.weights.empty()) {
    check_steps();
    return;
  }
  if (training_.size() < counts.size()) {
    size_t none = 0;
    while (none < training_.size() && training_[none].source == none) ++none;
    throw Error(ErrorCode::usage, fmt::format("[loader] expected at least one training window from each source with a weight, got none "
                                              "from source {}: leave the source out, give more of its data, or a shorter --sequence-length",
                                              none + 1));
  }
  set_mixture_start(mixture_from_the_beginning(options_.weights));
}

void Loader::check_steps() const {
  if (!options_.drop_last || windows_per_step() <= windows()) return;
  throw Error(ErrorCode::usage,
              fmt::format("[--drop-last] expected at most {} rows per step, which is one epoch, got {}: no step would be full (image "
                          "training always drops an incomplete last step); give a smaller batch or more --data",
                          windows(), windows_per_step()));
}

void Loader::set_mixture_start(MixtureStart start) {
  require(start.weights.size() == training_.size() && start.rows.size() == training_.size() && start.orders.size() == training_.size(),
          "[loader] expected a mixture with a weight, a row and an order for each source");
  mixture_.emplace(start.weights);
  mixture_start_ = std::move(start);
}

i64 Loader::windows() const { return total(training_); }
i64 Loader::validation_windows() const { return total(held_out_); }
i64 Loader::windows_per_step() const { return options_.micro_batches * options_.ranks * options_.micro_batch_size; }
i64 Loader::validation_micro_batches() const { return ceil_div(validation_windows(), options_.ranks * options_.micro_batch_size); }

std::vector<Loader::Part> Loader::parts(i64 rows) const {
  std::vector<Part> parts;
  for (size_t s = 0; mixture_ && s < training_.size(); ++s) {
    const i64 own = mixture_->rows_of(s, std::max<i64>(0, rows - mixture_start_->at));
    parts.push_back({mixture_start_->rows[s], own, training_[s].windows});
  }
  return parts;
}

Loader::Rows Loader::rows_of_step(i64 cursor) const {
  const i64 whole = windows_per_step();
  if (mixture_) return {cursor, cursor + whole};
  const i64 next_epoch = (cursor / windows() + 1) * windows();
  if (!options_.drop_last) return {cursor, std::min(cursor + whole, next_epoch)};
  const i64 begin = next_epoch - cursor < whole ? next_epoch : cursor;
  return {begin, begin + whole};
}

i64 Loader::steps_per_epoch() const {
  return options_.drop_last ? windows() / windows_per_step() : ceil_div(windows(), windows_per_step());
}

i64 Loader::steps_of_epochs(double epochs) const {
  if (!mixture_) return product(epochs, steps_per_epoch(), 1, true);
  return std::max<i64>(1, product(epochs, windows(), windows_per_step(), !options_.drop_last));
}

// Finds the window with index `window`. The windows of all ranges are numbered consecutively from 0.
Loader::Window Loader::numbered(const std::vector<Range>& ranges, i64 window) {
  auto range = ranges.begin();
  for (; window >= range->windows; ++range) window -= range->windows;
  return {range->source, range->first_window + window};
}

// Returns the index of the window that is read at position `at` of a sequence of epochs. Each epoch
// reads all `windows` windows once. If the data is shuffled, each epoch has its own permutation.
i64 Loader::in_order(RandomKey key, i64 windows, i64 at) const {
  const i64 epoch = at / windows, place = at % windows;
  if (!options_.shuffled) return place;
  key = key.derive("data order", static_cast<u64>(epoch));
  return static_cast<i64>(permute(key, static_cast<u64>(windows), static_cast<u64>(place)));
}

// Returns the window of training data that row `at` of the run reads.
Loader::Window Loader::window_at(i64 at) const {
  const RandomKey key{options_.seed};
  if (!mixture_) return numbered(training_, in_order(key, windows(), at));
  const auto [source, row] = mixture_->at(at - mixture_start_->at);
  const Range& range = training_[source];
  const i64 own = mixture_start_->rows[source] + row;
  return {source, range.first_window + in_order(key.derive("source of a mixture", mixture_start_->orders[source]), range.windows, own)};
}

StepBatch Loader::step(i64 cursor) const {
  require(cursor >= 0 && windows() > 0, "[loader] expected a cursor of at least 0 and at least one training window");
  const Rows rows = rows_of_step(cursor);
  StepBatch batch{.cursor = rows.begin};
  for (i64 k = 0; k < options_.micro_batches; ++k) {
    const i64 first = rows.begin + (k * options_.ranks + options_.rank) * options_.micro_batch_size;
    batch.micro_batches.push_back(make_micro_batch(first, [&](i64 row) -> std::optional<Window> {
      if (first + row >= rows.end) return std::nullopt;
      return window_at(first + row);
    }));
    batch.counted_targets += batch.micro_batches.back().counted_targets;
    batch.data_tokens += batch.micro_batches.back().data_tokens;
  }
  return batch;
}

MicroBatch Loader::validation(i64 i) const {
  require(i >= 0 && i < validation_micro_batches(), "[loader] expected the index of a validation micro-batch");
  const i64 first = (i * options_.ranks + options_.rank) * options_.micro_batch_size;
  return make_micro_batch(first, [&](i64 row) -> std::optional<Window> {
    if (first + row >= validation_windows()) return std::nullopt;
    return numbered(held_out_, first + row);
  });
}

std::string Loader::fingerprint() const {
  constexpr i64 kRead = 32;  // number of samples of each source that are read for the checksum
  std::string all;
  const std::vector<i64> counts = samples_->counts();
  for (size_t source = 0; source < counts.size(); ++source) {
    const i64 read = std::min(kRead, counts[source]);
    // to read a stream up to its end would take as long as an epoch
    const i64 last = samples_->is_stream() ? read - 1 : counts[source] - 1;
    const auto place = [&](i64 i) { return read > 1 ? i * last / (read - 1) : 0; };
    u32 sum = 0;
    // samples supplied by the calling program may be large, so only one is in memory at a time
    if (MicroBatch one = samples_->batch(1); !one.inputs.empty()) {
      for (i64 i = 0; i < read; ++i) {
        samples_->read(source, place(i), one, 0);
        for (const Tensor& t : one.inputs) sum = sum * 31 + crc32c({t.raw(), static_cast<size_t>(t.bytes())});
      }
      const std::string count = samples_->is_stream() ? "stream" : std::to_string(counts[source]);
      all += fmt::format("{}{}:{:08x}", source == 0 ? "" : " ", count, sum);
      continue;
    }
    MicroBatch batch = samples_->batch(std::max<i64>(read, 1));
    for (i64 i = 0; i < read; ++i) samples_->read(source, place(i), batch, i);
    // Older versions wrote kIgnoredTarget in place of kPaddingTarget. Writing kIgnoredTarget into
    // this copy keeps the fingerprint of unchanged data equal to that in runs of those versions.
    std::ranges::replace(batch.targets_BT.span<i32>(), kPaddingTarget, kIgnoredTarget);
    for (const Tensor* t : {&batch.tokens_BT, &batch.targets_BT, &batch.positions_BT}) {
      if (t->defined() && read > 0) sum = sum * 31 + crc32c(std::as_bytes(std::span(t->data<i32>(), static_cast<size_t>(t->elems()))));
    }
    all += fmt::format("{}{}:{:08x}", source == 0 ? "" : " ", counts[source], sum);
  }
  return all;
}

MicroBatch Loader::make_micro_batch(i64 first_sample, const std::function<std::optional<Window>(i64)>& window_of_row) const {
  const i64 rows = options_.micro_batch_size;
  MicroBatch batch = samples_->batch(rows);
  static std::atomic<u64> made = 0;
  batch.first_sample = first_sample, batch.number = ++made;
  require(batch.targets_BT.device().kind != Device::Kind::cuda, "[loader] batches are built in host memory: make a CPU stream current");
  if (!batch.targets_BT.raw()) {  // on the meta device no sample is read, because only sizes are needed
    for (i64 row = 0; row < rows; ++row) batch.counted_targets += window_of_row(row) ? samples_->targets() : 0;
    batch.data_tokens = batch.counted_targets;
    return batch;
  }
  std::vector<RowTokens> filled(static_cast<size_t>(rows));
  workers_->run(rows, [&](i64 row, int) { filled[static_cast<size_t>(row)] = fill_row(window_of_row(row), batch, row); });
  while (batch.samples < rows && window_of_row(batch.samples)) ++batch.samples;
  for (const RowTokens& row : filled) batch.counted_targets += row.counted, batch.data_tokens += row.tokens;
  batch.padding = std::ranges::count(batch.targets_BT.span<i32>(), kPaddingTarget);
  return batch;
}

RowTokens Loader::fill_row(const std::optional<Window>& window, MicroBatch& batch, i64 row) const {
  if (window) return samples_->read(window->source, window->sample, batch, row);
  samples_->leave_out(batch, row);
  return {};
}

}  // namespace spillway::data

// Loader produces the batches of a training run, one optimizer step at a time. Its samples (samples.h) are windows of tokens, or images; in
// this file images are called windows too. The windows of all sources are numbered consecutively. In each source the training windows come
// first, and the last `validation_fraction` of the windows are validation data. A row is a window at its place in the run: rows are
// numbered from 0 in the order in which they are trained on. The cursor q of a step is the number of rows before that step. With B rows per
// micro-batch, row b of micro-batch k of data-parallel rank r of R is row q + (k·R + r)·B + b of the run. Epochs follow each other; with
// `shuffled` each has its own seeded permutation (base/random.h). A step never reaches into the next epoch: if the epoch has too few rows
// left, the step is padded with rows whose targets are all ignored. With `drop_last` such an incomplete step is skipped instead. A mixture
// (mixture.h) has no end: all its steps are full, and each of its sources has its own epochs and permutations.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/random.h"
#include "base/thread_pool.h"
#include "data/loader/mixture.h"
#include "data/loader/samples.h"
#include "data/tokens/token_source.h"

namespace spillway::data {

struct LoaderOptions {
  i64 sequence_length = 0, micro_batch_size = 1;  // sequence_length is not used for images
  i64 micro_batches = 1;                          // K, the number of gradient accumulation steps
  int rank = 0, ranks = 1;
  bool shuffled = true;
  bool drop_last = false;  // whether the last step of an epoch is skipped if too few rows are left to fill it
  u64 seed = 1337;
  // The sampling weight of each source of a mixture, above 0. If the list is
  // empty, there is no mixture, and every epoch takes all windows of all sources.
  std::vector<double> weights;
  int workers = 1;  // the number of threads that read rows; it does not change the batches
  // The fraction of each source's windows that is validation data. If the fraction is above 0, a
  // source of at least two windows gives at least one. With 1 every window is validation data.
  double validation_fraction = 0;
};

class Loader {
 public:
  /// Creates a loader of token sources, which must outlive it. Throws Error(usage) in these cases: there is no training
  /// window (the message names the number of tokens, the sequence length and a remedy); a weight is not positive and
  /// finite; a source of a mixture has no training window; or `drop_last` is set and a step has more rows than an epoch.
  Loader(const std::vector<std::unique_ptr<TokenSource>>& sources, const LoaderOptions& options);
  Loader(std::unique_ptr<const Samples> samples, const LoaderOptions& options);
  // Returns the number of training windows of all sources. Without a mixture, one epoch consists of exactly these windows.
  i64 windows() const;
  i64 validation_windows() const;
  /// Returns the number of rows in one optimizer step over all ranks, padded rows included: K · R · B.
  i64 windows_per_step() const;
  /// The rows of the run that one step trains on, over all ranks: [begin, end). `begin` is the step's cursor. With drop_last, if too few
  /// rows are left in the cursor's epoch, `begin` is the first row of the next epoch.
  struct Rows {
    i64 begin, end;
    i64 count() const { return end - begin; }
  };
  Rows rows_of_step(i64 cursor) const;
  /// Returns the cursor of the step that comes after the step at `cursor`.
  i64 cursor_after(i64 cursor) const { return rows_of_step(rows_of_step(cursor).end).begin; }
  bool is_mixture() const { return mixture_.has_value(); }
  /// Returns the number of steps in an epoch. Do not call it for a mixture, which has no epochs as a whole.
  i64 steps_per_epoch() const;
  /// Returns the number of steps in `epochs` epochs. `epochs` is taken as the shortest decimal number that prints
  /// as this double, and the product is computed exactly and rounded up: a fraction of an epoch that only begins
  /// a step counts as that step. For a mixture an epoch is windows() rows, and the number of rows is converted to
  /// steps (with drop_last rounded down, to at least 1). Throws Error(usage) if the result is 2^62 steps or more.
  i64 steps_of_epochs(double epochs) const;
  /// Returns, for a mixture, the row of the run from which its weights apply, and how many rows of each source come before that row. The
  /// row is 0 unless set_mixture_start() was called. That call is allowed only before the first step and while no other thread reads.
  const std::optional<MixtureStart>& mixture_start() const { return mixture_start_; }
  void set_mixture_start(MixtureStart start);
  /// One source of a mixture: `before` counts its rows consumed before mixture_start(), `rows` those consumed from there up to a given row
  /// of the run, and `windows` its training windows.
  struct Part {
    i64 before, rows, windows;
  };
  std::vector<Part> parts(i64 rows) const;
  /// Returns a text that changes when the data changes. For each source the text holds the number of samples and
  /// a checksum. The checksum covers at most 32 samples, spread evenly over the source: their tokens, targets and
  /// positions, or for images the classes. Do not call fingerprint() on the meta device, where nothing is read.
  std::string fingerprint() const;
  /// Returns the batch of the step at `cursor`. The batch's tensors are allocated
  /// from the current stream. Equal arguments always give equal batches.
  StepBatch step(i64 cursor) const;
  /// Returns this rank's validation micro-batch i, 0 <= i < validation_micro_batches(). Row b holds validation window (i·R + r)·B + b. Rows
  /// after the last window are padded with ignored targets, so that all ranks have the same number of micro-batches.
  MicroBatch validation(i64 i) const;
  i64 validation_micro_batches() const;

 private:
  struct Range {
    size_t source;
    i64 first_window, windows;
  };
  struct Window {
    size_t source;
    i64 sample;
  };
  static Window numbered(const std::vector<Range>& ranges, i64 window);
  i64 in_order(RandomKey key, i64 windows, i64 at) const;
  Window window_at(i64 at) const;
  void check_steps() const;
  MicroBatch make_micro_batch(i64 first_sample, const std::function<std::optional<Window>(i64 row)>& window_of_row) const;
  RowTokens fill_row(const std::optional<Window>& window, MicroBatch& batch, i64 row) const;
  std::unique_ptr<const Samples> samples_;
  std::unique_ptr<ThreadPool> workers_;
  LoaderOptions options_;
  std::optional<Mixture> mixture_;
  std::optional<MixtureStart> mixture_start_;
  std::vector<Range> training_, held_out_;
};

}  // namespace spillway::data

// Records of TensorBoard's event files: https://github.com/tensorflow/tensorboard, tensorboard/compat/proto/event.proto and summary.proto,
// in protobuf's wire format (https://protobuf.dev/programming-guides/encoding), framed as TFRecord does: the length, its masked CRC-32C,
// the bytes, theirs. A file is the first event and any number of others. Pure functions.
#pragma once
#include <span>
#include <string>
#include <string_view>

#include "app/events/histogram.h"
#include "app/events/scalars.h"
#include "base/types.h"

namespace spillway::app {

/// The bytes as one TFRecord.
std::string framed(std::string_view bytes);

/// The first record of a file. `wall_time`, here and below: seconds since 1970.
std::string first_event(double wall_time);
/// A start of the run, whose first step this is: what older files have of it and of later ones no longer counts.
std::string start_event(double wall_time, i64 step);
/// In TensorBoard a number is a float32.
std::string scalars_event(double wall_time, i64 step, std::span<const Scalar> scalars);
/// A sample for the page of texts, which reads Markdown, and UTF-8 alone: what is none becomes U+FFFD.
std::string text_event(double wall_time, i64 step, std::string_view tag, std::string_view text);
/// For the pages of histograms and of distributions. In it a number is a double.
std::string histogram_event(double wall_time, i64 step, std::string_view tag, const Histogram& histogram);

}  // namespace spillway::app

#include "trainer/ranks/peers.h"

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstring>

#include "base/types.h"
#include "trainer/node/failure.h"

namespace spillway::trainer {
namespace {

// Returns the set of cores that this thread may run on, as a string of '0' and '1' with one character for each core.
std::string cores_text() {
  cpu_set_t set;
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return "";
  std::string text;
  for (int core = 0; core < CPU_SETSIZE; ++core) text += CPU_ISSET(core, &set) ? '1' : '0';
  return text;
}

constexpr i64 kMostBytes = kGiB;

[[noreturn]] void wrong_text(size_t rank, const std::string& got) {
  throw Error(ErrorCode::peer, fmt::format("[ranks] expected at most 1 GiB of text or numbers from rank {}, got {}", rank, got));
}

}  // namespace

std::string Peers::host_name() {
  char name[256] = "?";
  ::gethostname(name, sizeof name - 1);
  return name;
}

Peers::Peers(std::unique_ptr<parallel::Communicator> all, std::string host) : all_(std::move(all)) {
  if (all_) place_ = {all_->rank(), all_->size()};
  hosts_ = gather(host);
  place_.local_ranks = static_cast<int>(std::ranges::count(hosts_, host));
  const auto sharers = [&](const std::string& of_host) {
    const std::string what = host + " " + of_host;
    return static_cast<int>(std::ranges::count(gather(what), what));
  };
  place_.core_sharers = sharers(cores_text());
  place_.process_ranks = sharers(std::to_string(::getpid()));
  place_.local_rank = static_cast<int>(std::count(hosts_.begin(), hosts_.begin() + place_.rank, host));
}

std::string Peers::name(int rank) const { return fmt::format("rank {} on host {}", rank, hosts_[static_cast<size_t>(rank)]); }

std::vector<std::string> Peers::gather(const std::string& mine) const {
  if (!all_) return {mine};
  const auto ranks = static_cast<size_t>(place_.ranks);
  parallel::Parts numbers, parts{0};
  for (size_t r = 0; r <= ranks; ++r) numbers.push_back(static_cast<i64>(r * sizeof(i64)));
  const auto size = static_cast<i64>(mine.size());
  std::vector<i64> sizes(ranks);
  all_->all_gather(std::as_bytes(std::span(&size, 1)), std::as_writable_bytes(std::span(sizes)), numbers).wait();
  for (size_t r = 0; r < ranks; ++r) {
    if (sizes[r] < 0 || sizes[r] > kMostBytes) wrong_text(r, fmt::format("{} bytes", sizes[r]));
    parts.push_back(parts.back() + sizes[r]);
  }
  std::string joined(static_cast<size_t>(parts.back()), '\0');
  all_->all_gather(std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(joined)), parts).wait();
  std::vector<std::string> texts;
  for (size_t r = 0; r < ranks; ++r) texts.push_back(joined.substr(static_cast<size_t>(parts[r]), static_cast<size_t>(sizes[r])));
  return texts;
}

std::vector<std::vector<double>> Peers::gather(const std::vector<double>& mine) const {
  std::vector<std::vector<double>> all;
  const auto* bytes = reinterpret_cast<const char*>(mine.data());
  for (const std::string& text : gather(std::string(bytes, mine.size() * sizeof(double)))) {
    if (text.size() % sizeof(double) != 0) wrong_text(all.size(), fmt::format("{} bytes, which is not a multiple of 8", text.size()));
    all.emplace_back(text.size() / sizeof(double));
    std::memcpy(all.back().data(), text.data(), text.size());
  }
  return all;
}

std::string Peers::from_first(const std::string& text) const { return gather(first() ? text : "").front(); }

std::vector<i64> Peers::most(std::vector<i64> numbers) const {
  if (all_) all_->all_reduce(std::as_writable_bytes(std::span(numbers)), DType::int64, parallel::Reduction::max).wait();
  return numbers;
}

std::vector<i64> Peers::sum(std::vector<i64> numbers) const {
  if (all_) all_->all_reduce(std::as_writable_bytes(std::span(numbers)), DType::int64, parallel::Reduction::sum).wait();
  return numbers;
}

// Runs `body` and gathers the outcomes of all ranks. Each rank sends an empty text if `body` succeeded. Otherwise it sends the error's
// code, a space and the error's message.
void Peers::together(const std::function<void()>& body) const {
  std::string told;
  if (all_) all_->works_alone();
  try {
    body();
  } catch (...) {
    const Failure failure = failure_of(std::current_exception());
    told = std::to_string(static_cast<int>(failure.code)) + " " + failure.text;
  }
  const std::vector<std::string> all = gather(told);
  const auto failed = std::ranges::find_if(all, [](const std::string& t) { return !t.empty(); });
  if (failed == all.end()) return;
  int code = static_cast<int>(ErrorCode::bug);
  std::from_chars(failed->data(), failed->data() + failed->size(), code);
  const std::string text = failed->substr(failed->find(' ') + 1);
  const bool alike = std::ranges::all_of(all, [&](const std::string& t) { return t == *failed; });
  throw AgreedError(static_cast<ErrorCode>(code), alike ? text : name(static_cast<int>(failed - all.begin())) + ": " + text);
}

void Peers::abort(const std::string& what) const {
  if (all_) all_->abort(what);
}

}  // namespace spillway::trainer

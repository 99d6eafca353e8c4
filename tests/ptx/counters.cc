#include "ptx/counters.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>

namespace ptx {
namespace {

struct Sums {
  std::mutex mutex;
  std::map<std::string, Counters> all, anew;  // since the process began, and since count_anew()
  ~Sums() {
    if (!std::getenv("SPILLWAY_PTX_COUNTERS")) return;
    const char* path = std::getenv("SPILLWAY_PTX_COUNTERS");
    std::FILE* out = path && *path && std::string(path) != "1" ? std::fopen(path, "a") : stderr;
    if (!out) return;
    for (const auto& [kernel, c] : all) {
      const auto per = [](std::uint64_t n, std::uint64_t of_all) {
        return of_all > 0 ? static_cast<double>(n) / static_cast<double>(of_all) : 0;
      };
      std::fprintf(out,
                   "kernel %s launches %llu threads %llu instructions %llu per_thread %.1f warp_instructions %llu active_lanes %.2f mma "
                   "%llu barriers %llu "
                   "global_loads %llu sectors_per_load %.2f bytes_loaded %llu global_stores %llu sectors_per_store %.2f bytes_stored %llu "
                   "shared_requests %llu waves_per_request %.2f local_requests %llu\n",
                   kernel.c_str(), static_cast<unsigned long long>(c.launches), static_cast<unsigned long long>(c.threads),
                   static_cast<unsigned long long>(c.thread_instructions), per(c.thread_instructions, c.threads),
                   static_cast<unsigned long long>(c.warp_instructions), per(c.thread_instructions, c.warp_instructions),
                   static_cast<unsigned long long>(c.products), static_cast<unsigned long long>(c.barriers),
                   static_cast<unsigned long long>(c.global_loads), per(c.global_load_sectors, c.global_loads),
                   static_cast<unsigned long long>(c.global_load_bytes), static_cast<unsigned long long>(c.global_stores),
                   per(c.global_store_sectors, c.global_stores), static_cast<unsigned long long>(c.global_store_bytes),
                   static_cast<unsigned long long>(c.shared_requests), per(c.shared_waves, c.shared_requests),
                   static_cast<unsigned long long>(c.local_requests));
    }
    if (out != stderr) std::fclose(out);
  }
};

std::atomic<bool> wanted = std::getenv("SPILLWAY_PTX_COUNTERS") != nullptr;

Sums& sums() {
  static Sums one;
  return one;
}

// Returns how often the most used bank is asked for different words. Wide requests are served a half or a quarter of a warp at a time.
std::uint64_t waves(const std::array<u64, kLanes>& addresses, u32 mask, u32 bytes) {
  const u32 at_once = bytes <= 4 ? kLanes : kLanes * 4 / bytes;
  std::uint64_t all = 0;
  for (u32 first = 0; first < kLanes; first += at_once) {
    std::array<u64, kLanes * 4> words;
    std::size_t count = 0;
    for (u32 lane = first; lane < first + at_once; ++lane) {
      if ((mask >> lane & 1) == 0) continue;
      for (u64 word = addresses[lane] / 4; word <= (addresses[lane] + bytes - 1) / 4; ++word) words[count++] = word;
    }
    if (count == 0) continue;
    std::sort(words.begin(), words.begin() + count);
    const auto end = std::unique(words.begin(), words.begin() + count);
    std::array<std::uint64_t, kLanes> of_bank{};
    for (auto word = words.begin(); word != end; ++word) ++of_bank[*word % kLanes];
    all += *std::ranges::max_element(of_bank);
  }
  return all;
}

std::uint64_t sectors(const std::array<u64, kLanes>& addresses, u32 mask) {
  std::array<u64, kLanes * 2> all;
  std::size_t count = 0;
  for (u32 lane = 0; lane < kLanes; ++lane) {
    if ((mask >> lane & 1) != 0) all[count++] = addresses[lane] / 32;  // an aligned access lies within one sector
  }
  std::sort(all.begin(), all.begin() + count);
  return static_cast<std::uint64_t>(std::unique(all.begin(), all.begin() + count) - all.begin());
}

}  // namespace

void Counters::add(const Counters& o) {
  launches += o.launches, threads += o.threads, thread_instructions += o.thread_instructions, warp_instructions += o.warp_instructions;
  products += o.products, barriers += o.barriers;
  global_loads += o.global_loads, global_load_sectors += o.global_load_sectors, global_load_bytes += o.global_load_bytes;
  global_stores += o.global_stores, global_store_sectors += o.global_store_sectors, global_store_bytes += o.global_store_bytes;
  shared_requests += o.shared_requests, shared_waves += o.shared_waves, local_requests += o.local_requests;
}

void Counters::request(Space space, const std::array<u64, kLanes>& addresses, u32 mask, u32 bytes, bool is_load) {
  if (space == Space::generic) {
    const u64 window = addresses[static_cast<std::size_t>(__builtin_ctz(mask))] & kWindowMask;
    space = window == kSharedWindow  ? Space::shared
            : window == kLocalWindow ? Space::local
            : window == kParamWindow ? Space::param
                                     : Space::global;
  }
  const auto lanes = static_cast<std::uint64_t>(__builtin_popcount(mask));
  if (space == Space::local) {
    ++local_requests;
  } else if (space == Space::shared) {
    ++shared_requests, shared_waves += waves(addresses, mask, bytes);
  } else if (space == Space::global && is_load) {
    ++global_loads, global_load_sectors += sectors(addresses, mask), global_load_bytes += lanes * bytes;
  } else if (space == Space::global) {
    ++global_stores, global_store_sectors += sectors(addresses, mask), global_store_bytes += lanes * bytes;
  }
}

bool counts() { return wanted.load(std::memory_order_relaxed); }

void count(const std::string& kernel, const Counters& counters) {
  const std::lock_guard lock(sums().mutex);
  sums().all[kernel].add(counters);
  sums().anew[kernel].add(counters);
}

void count_anew() {
  const std::lock_guard lock(sums().mutex);
  wanted = true;
  sums().anew.clear();
}

std::map<std::string, Counters> counted() {
  const std::lock_guard lock(sums().mutex);
  return sums().anew;
}

}  // namespace ptx

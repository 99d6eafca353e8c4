#include "ptx/block.h"

#include <cxxabi.h>

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <cstring>

namespace ptx {
namespace {

constexpr int kMostSteps = 400;  // of a warp before another one's turn

std::string demangled(const std::string& name) {
  int status = 0;
  char* text = abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status);
  std::string out = status == 0 ? text : name;
  std::free(text);
  return out;
}

std::string lanes_text(u32 lanes) { return lanes == kAllLanes ? "all lanes" : "lanes " + hex(lanes); }
std::string line_text(const Instruction& i) { return "line " + std::to_string(i.line) + " (" + i.text + ")"; }

}  // namespace

BlockRunner::BlockRunner(const Program& program, const Launch& launch, std::vector<u8> parameters, Memory& memory, Counters& counters,
                         Chance& chance)
    : block_{program, launch, {}, std::move(parameters), memory, counters, chance} {
  block_.threads = launch.threads[0] * launch.threads[1] * launch.threads[2];
  block_.warps.resize((block_.threads + kLanes - 1) / kLanes);
  for (std::size_t w = 0; w < block_.warps.size(); ++w) {
    Warp& warp = block_.warps[w];
    warp.block = &block_, warp.index = static_cast<u32>(w);
    warp.registers.resize(program.register_bytes + 64);
    warp.specials.resize(static_cast<std::size_t>(Special::count) * kLanes * 12);
    const auto aligned = [](u8* at) { return at + (64 - reinterpret_cast<u64>(at) % 64) % 64; };
    warp.bank = {aligned(warp.registers.data()), const_cast<u8*>(program.constants.data()), warp.specials.data()};
  }
}

void BlockRunner::fill_specials(Warp& warp) {
  const auto set = [&](Special special, u32 lane, u32 value) {
    const auto at = static_cast<std::size_t>(special);
    const u64 wide = value;
    std::memcpy(&warp.specials[(at * kLanes + lane) * 8], &wide, 8);
    std::memcpy(&warp.specials[static_cast<std::size_t>(Special::count) * kLanes * 8 + (at * kLanes + lane) * 4], &value, 4);
  };
  const auto& n = block_.launch.threads;
  const auto three = [&](Special first, u32 lane, unsigned x, unsigned y, unsigned z) {
    for (const auto& [k, value] : {std::pair{0, x}, {1, y}, {2, z}}) set(static_cast<Special>(static_cast<int>(first) + k), lane, value);
  };
  for (u32 lane = 0; lane < kLanes; ++lane) {
    const u32 thread = warp.index * kLanes + lane, bit = 1u << lane;
    three(Special::tid_x, lane, thread % n[0], thread / n[0] % n[1], thread / n[0] / n[1]);
    three(Special::ntid_x, lane, n[0], n[1], n[2]);
    three(Special::ctaid_x, lane, block_.index[0], block_.index[1], block_.index[2]);
    three(Special::nctaid_x, lane, block_.launch.blocks[0], block_.launch.blocks[1], block_.launch.blocks[2]);
    set(Special::laneid, lane, lane);
    set(Special::warpid, lane, warp.index);
    set(Special::lanemask_eq, lane, bit);
    set(Special::lanemask_lt, lane, bit - 1);
    set(Special::lanemask_le, lane, (bit - 1) | bit);
    set(Special::lanemask_gt, lane, ~((bit - 1) | bit));
    set(Special::lanemask_ge, lane, ~(bit - 1));
  }
}

void BlockRunner::start(Warp& warp) {
  fill_specials(warp);
  const u32 lanes = std::min(kLanes, block_.threads - warp.index * kLanes);
  warp.alive = lanes == kLanes ? kAllLanes : (1u << lanes) - 1;
  warp.groups.assign(1, {0, warp.alive, Group::State::runs});
  warp.carry = warp.synced = 0;
  for (auto& copies : warp.copies) copies.clear();
  warp.copy_groups.fill(0);
}

void BlockRunner::run(u64 number) {
  const auto& n = block_.launch.blocks;
  block_.number = number;
  block_.index = {static_cast<unsigned>(number % n[0]), static_cast<unsigned>(number / n[0] % n[1]),
                  static_cast<unsigned>(number / n[0] / n[1])};
  block_.barriers = 0;
  block_.memory.begin_block();
  for (Warp& warp : block_.warps) start(warp);
  std::vector<Warp*> ready;
  for (;;) {
    ready.clear();
    bool any = false;
    for (Warp& warp : block_.warps) {
      any = any || warp.alive != 0;
      if (std::ranges::any_of(warp.groups, [](const Group& g) { return g.state == Group::State::runs; })) ready.push_back(&warp);
    }
    if (!any) return;
    if (ready.empty()) {
      open_barrier();
    } else {
      Warp& warp = *ready[block_.chance() % ready.size()];
      running_ = &warp;
      run_warp(warp, 1 + static_cast<int>(block_.chance() % kMostSteps));
    }
  }
}

// Joins groups that are at the same instruction. A group that waits there runs again: it may now be complete.
void BlockRunner::merge(Warp& warp) {
  for (std::size_t i = 0; i < warp.groups.size(); ++i) {
    for (std::size_t j = i + 1; j < warp.groups.size();) {
      if (warp.groups[i].at != warp.groups[j].at) {
        ++j;
        continue;
      }
      warp.groups[i].lanes |= warp.groups[j].lanes;
      warp.groups[i].state = Group::State::runs;
      warp.groups.erase(warp.groups.begin() + static_cast<std::ptrdiff_t>(j));
    }
  }
}

// Runs the lanes that are furthest behind, which makes lanes that went different ways meet again as early as they can.
void BlockRunner::run_warp(Warp& warp, int most) {
  while (most > 0 && !warp.groups.empty()) {
    if (warp.groups.size() > 1) merge(warp);
    std::size_t chosen = warp.groups.size();
    for (std::size_t i = 0; i < warp.groups.size(); ++i) {
      const Group& g = warp.groups[i];
      if (g.state == Group::State::runs && (chosen == warp.groups.size() || g.at < warp.groups[chosen].at)) chosen = i;
    }
    if (chosen == warp.groups.size()) {
      if (std::ranges::any_of(warp.groups, [](const Group& g) { return g.state == Group::State::gathers; })) report_stuck(warp);
      return;  // all wait at the block's barrier
    }
    step(warp, chosen, most);
  }
}

// Runs a group until it ends, waits, splits or reaches another group.
void BlockRunner::step(Warp& warp, std::size_t chosen, int& most) {
  int limit = INT_MAX;
  for (const Group& g : warp.groups) {
    if (g.at > warp.groups[chosen].at) limit = std::min(limit, g.at);
  }
  const Instruction* const code = block_.program.code.data();
  int at = warp.groups[chosen].at;
  const u32 lanes = warp.groups[chosen].lanes;
  Counters& counters = block_.counters;
  while (most > 0 && at < limit) {
    const Instruction& i = code[at];
    warp.now = &i;
    const u32 mask = i.has_guard ? lanes & warp.predicate(i.guard) : lanes;
    --most;
    ++counters.warp_instructions;
    counters.thread_instructions += static_cast<u64>(__builtin_popcount(mask));
    if (i.flow == Flow::next) {
      if (mask != 0) i.execute(warp, i, mask);
      ++at;
      continue;
    }
    if (mask == 0) {
      ++at;
      continue;
    }
    if (i.flow == Flow::branch && mask == lanes) {
      at = i.target;
      continue;
    }
    warp.groups[chosen].at = at;
    if (i.flow == Flow::branch) {
      warp.groups[chosen] = {at + 1, lanes & ~mask, Group::State::runs};
      warp.groups.push_back({i.target, mask, Group::State::runs});
    } else if (i.flow == Flow::branch_indexed) {
      const u32* index = warp.in<u32>(i.from[0]);
      if (mask == lanes)
        warp.groups.erase(warp.groups.begin() + static_cast<std::ptrdiff_t>(chosen));
      else
        warp.groups[chosen] = {at + 1, lanes & ~mask, Group::State::runs};
      each_lane(mask, [&](u32 lane) {
        if (index[lane] >= i.targets.size()) throw Fault("brx.idx beyond its table");
        warp.groups.push_back({i.targets[index[lane]], 1u << lane, Group::State::runs});
      });
    } else if (i.flow == Flow::end) {
      warp.alive &= ~mask;
      if (mask == lanes)
        warp.groups.erase(warp.groups.begin() + static_cast<std::ptrdiff_t>(chosen));
      else
        warp.groups[chosen] = {at + 1, lanes & ~mask, Group::State::runs};
    } else if (i.flow == Flow::barrier) {
      arrive(warp, chosen, mask);
    } else {
      gather(warp, chosen, i, mask);
    }
    return;
  }
  warp.groups[chosen].at = at;
}

void BlockRunner::arrive(Warp& warp, std::size_t chosen, u32 mask) {
  const Group g = warp.groups[chosen];
  if (mask != g.lanes) warp.groups.push_back({g.at + 1, g.lanes & ~mask, Group::State::runs});
  warp.groups[chosen] = {g.at, mask, Group::State::barrier};
}

// Executes an instruction for which the lanes that its mask names wait for each other, for those lanes that are complete.
void BlockRunner::gather(Warp& warp, std::size_t chosen, const Instruction& i, u32 mask) {
  const Group g = warp.groups[chosen];
  const u32* masks = warp.in<u32>(i.mask);
  u32 complete = 0;
  each_lane(mask, [&](u32 lane) {
    if ((masks[lane] >> lane & 1) == 0)
      throw Fault("lane " + std::to_string(lane) + " comes with the mask " + hex(masks[lane]) + ", which does not name it");
    u32 same = 0;
    each_lane(mask, [&](u32 other) { same |= static_cast<u32>(masks[other] == masks[lane]) << other; });
    if ((masks[lane] & warp.alive & ~same) == 0) complete |= 1u << lane;
  });
  if (complete != 0) i.execute(warp, i, complete);
  const u32 wait = mask & ~complete, go_on = g.lanes & ~wait;
  if (wait == 0) {
    warp.groups[chosen].at = g.at + 1;
  } else {
    warp.groups[chosen] = {g.at, wait, Group::State::gathers};
    if (go_on != 0) warp.groups.push_back({g.at + 1, go_on, Group::State::runs});
  }
}

void BlockRunner::report_stuck(const Warp& warp) const {
  for (const Group& g : warp.groups) {
    if (g.state != Group::State::gathers) continue;
    const Instruction& i = block_.program.code[static_cast<std::size_t>(g.at)];
    const u32 mask = warp.in<u32>(i.mask)[__builtin_ctz(g.lanes)];
    throw Fault(lanes_text(g.lanes) + " wait at " + line_text(i) + " with the mask " + hex(mask) + ", but lanes " +
                hex(mask & warp.alive & ~g.lanes) + " never come there");
  }
  std::abort();
}

// Lets all go on, if they wait at the same barrier. Threads that have ended count as there.
void BlockRunner::open_barrier() {
  const Group* first = nullptr;
  const Warp* first_warp = nullptr;
  for (Warp& warp : block_.warps) {
    for (const Group& g : warp.groups) {
      running_ = &warp;
      if (g.state == Group::State::gathers) report_stuck(warp);
      if (!first) first = &g, first_warp = &warp;
      if (g.at == first->at) continue;
      warp.now = &block_.program.code[static_cast<std::size_t>(g.at)];
      throw Fault("a barrier that not all threads reach: " + lanes_text(first->lanes) + " of warp " + std::to_string(first_warp->index) +
                  " wait at " + line_text(block_.program.code[static_cast<std::size_t>(first->at)]) + ", " + lanes_text(g.lanes) +
                  " of warp " + std::to_string(warp.index) + " at " + line_text(*warp.now));
    }
  }
  for (Warp& warp : block_.warps) {
    for (Group& g : warp.groups) ++g.at, g.state = Group::State::runs;
    warp.synced = 0;
  }
  ++block_.barriers;
  ++block_.counters.barriers;
}

std::string BlockRunner::place(const std::map<int, std::string>& files) const {
  std::string text = "kernel " + demangled(block_.program.name);
  if (running_ && running_->now) {
    const Instruction& i = *running_->now;
    text += ", " + line_text(i) + " of its PTX";
    if (const auto file = files.find(i.source_file); i.source_line > 0 && file != files.end())
      text += ", " + file->second + ":" + std::to_string(i.source_line);
  }
  const auto three = [](const std::array<unsigned, 3>& n) {
    return "(" + std::to_string(n[0]) + ", " + std::to_string(n[1]) + ", " + std::to_string(n[2]) + ")";
  };
  text += ", launched as " + three(block_.launch.blocks) + " blocks of " + three(block_.launch.threads) + " threads, block " +
          three(block_.index);
  if (running_) text += ", warp " + std::to_string(running_->index);
  return text;
}

}  // namespace ptx

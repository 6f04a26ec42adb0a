#include "troika/trace/look.h"

#include <fmt/format.h>

#include <cmath>

namespace troika {
namespace {

struct Colour {
  int red, green, blue;
};

struct Shades {
  Colour first, last;  // of the first and the last of a lane's stages
};

// What stands side by side differs in lightness: forward against backward, input part against weight part.
Shades shades_of(Op op) {
  switch (op) {
    case Op::load:
      return {{0xC9, 0xC4, 0xD6}, {0xA3, 0x9B, 0xB8}};
    case Op::forward:
      return {{0x8C, 0xC1, 0xF0}, {0x55, 0x98, 0xD8}};
    case Op::recompute:
      return {{0xCF, 0xE5, 0xF8}, {0xA6, 0xCB, 0xEC}};
    case Op::backward:
      return {{0x2F, 0x6F, 0xB5}, {0x17, 0x3F, 0x73}};
    case Op::backward_input:
      return {{0x2F, 0x7F, 0x7C}, {0x17, 0x50, 0x4F}};
    case Op::backward_weight:
      return {{0xC9, 0xE6, 0xB0}, {0x93, 0xC4, 0x6C}};
    case Op::reduce_gradients:
      return {{0xF2, 0xC1, 0x4E}, {0xD1, 0x9A, 0x1A}};
    case Op::optimizer_step:
      return {{0xC4, 0x55, 0x33}, {0x8F, 0x35, 0x19}};
    case Op::send_activation:
    case Op::receive_activation:
      return {{0x9A, 0x9A, 0x9A}, {0x80, 0x80, 0x80}};
    case Op::send_gradient:
    case Op::receive_gradient:
      return {{0x6A, 0x6A, 0x6A}, {0x50, 0x50, 0x50}};
  }
  return {};
}

}  // namespace

std::string fill_of(Op op, int chunk, int chunks) {
  const auto [first, last] = shades_of(op);
  const double way = chunks <= 1 ? 0 : static_cast<double>(chunk) / (chunks - 1);
  const auto between = [&](int from, int to) {
    return static_cast<int>(std::lround(from + way * (to - from)));
  };
  return fmt::format("#{:02x}{:02x}{:02x}", between(first.red, last.red), between(first.green, last.green),
                     between(first.blue, last.blue));
}

const char* ink_on(const std::string& fill) {
  const auto part = [&](size_t at) { return std::stoi(fill.substr(at, 2), nullptr, 16); };
  const double light = 0.299 * part(1) + 0.587 * part(3) + 0.114 * part(5);
  return light < 130 ? "#ffffff" : "#1a1a1a";
}

int terminal_colour(Op op, bool later_chunk) {
  switch (op) {
    case Op::load:
      return later_chunk ? 146 : 189;
    case Op::forward:
      return later_chunk ? 75 : 117;
    case Op::recompute:
      return later_chunk ? 152 : 195;
    case Op::backward:
      return later_chunk ? 172 : 215;
    case Op::backward_input:
      return later_chunk ? 37 : 80;
    case Op::backward_weight:
      return later_chunk ? 107 : 150;
    case Op::reduce_gradients:
      return later_chunk ? 178 : 221;
    case Op::optimizer_step:
      return later_chunk ? 167 : 210;
    case Op::send_activation:
    case Op::receive_activation:
    case Op::send_gradient:
    case Op::receive_gradient:
      return later_chunk ? 245 : 250;
  }
  return 250;
}

}  // namespace troika

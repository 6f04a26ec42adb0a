#include "troika/parallel/fused_update.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <type_traits>

#include "troika/base/error.h"

namespace troika {
namespace {

// Small enough for the first-level cache beside one block of each buffer.
constexpr int64_t kBlock = 512;

#define TROIKA_INLINE [[gnu::always_inline]] inline

template <typename T>
struct Numbers {
  T learning_rate, weight_decay, momentum, beta1, one_minus_beta1, beta2, one_minus_beta2, epsilon;
  T decay_factor;     // AdamW: 1 - learning rate * weight decay
  T step_size;        // Adam: learning rate / (1 - beta1^t)
  T root_correction;  // Adam: sqrt(1 - beta2^t)
  T weight;           // of the global batch
};

template <typename T>
Numbers<T> numbers_of(const Optimizer& o, double weight, int64_t step) {
  const double t = static_cast<double>(step);
  return {static_cast<T>(o.learning_rate),
          static_cast<T>(o.weight_decay),
          static_cast<T>(o.momentum),
          static_cast<T>(o.beta1),
          static_cast<T>(1 - o.beta1),
          static_cast<T>(o.beta2),
          static_cast<T>(1 - o.beta2),
          static_cast<T>(o.epsilon),
          static_cast<T>(1 - o.learning_rate * o.weight_decay),
          static_cast<T>(o.learning_rate / (1 - std::pow(o.beta1, t))),
          static_cast<T>(std::sqrt(1 - std::pow(o.beta2, t))),
          static_cast<T>(weight)};
}

// The sum of the ranks' gradients in rank order, over the weight; zeroes them. Nonzero if an element isn't
// finite.
template <typename T>
TROIKA_INLINE int take_mean(std::span<void* const> gradients, int64_t begin, int64_t n, T weight, T* mean) {
  using Bits = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;
  const Bits exponent = std::bit_cast<Bits>(std::numeric_limits<T>::infinity());
  T* __restrict out = mean;
  T* __restrict first = static_cast<T*>(gradients[0]) + begin;
  const size_t ranks = gradients.size();
  Bits bad = 0;
  if (ranks == 1) {
    for (int64_t i = 0; i < n; ++i) {
      out[i] = first[i] / weight;
      first[i] = 0;
    }
  } else {
    for (int64_t i = 0; i < n; ++i) {
      out[i] = first[i];
      first[i] = 0;
    }
    for (size_t k = 1; k + 1 < ranks; ++k) {
      T* __restrict next = static_cast<T*>(gradients[k]) + begin;
      for (int64_t i = 0; i < n; ++i) {
        out[i] += next[i];
        next[i] = 0;
      }
    }
    T* __restrict last = static_cast<T*>(gradients[ranks - 1]) + begin;
    for (int64_t i = 0; i < n; ++i) {
      out[i] = (out[i] + last[i]) / weight;
      last[i] = 0;
    }
  }
  for (int64_t i = 0; i < n; ++i) bad |= Bits{(std::bit_cast<Bits>(out[i]) & exponent) == exponent};
  return bad != 0;
}

enum class Rule { sgd, sgd_momentum, sgd_nesterov, adam, adamw };

// As torch::optim computes it, operation by operation.
template <Rule rule, typename T>
TROIKA_INLINE void apply(const Numbers<T>& c, const T* mean, int64_t n, T* weights, T* moment1, T* moment2) {
  const T* __restrict g = mean;
  T* __restrict w = weights;
  T* __restrict m = moment1;
  T* __restrict v = moment2;
  for (int64_t i = 0; i < n; ++i) {
    if constexpr (rule == Rule::adam || rule == Rule::adamw) {
      T gradient = g[i];
      T value = w[i];
      if constexpr (rule == Rule::adamw) {
        value *= c.decay_factor;
      } else {
        gradient += c.weight_decay * value;
      }
      m[i] = m[i] * c.beta1 + gradient * c.one_minus_beta1;
      v[i] = v[i] * c.beta2 + gradient * gradient * c.one_minus_beta2;
      w[i] = value - c.step_size * m[i] / (std::sqrt(v[i]) / c.root_correction + c.epsilon);
    } else {
      T gradient = g[i] + c.weight_decay * w[i];
      if constexpr (rule != Rule::sgd) {
        m[i] = m[i] * c.momentum + gradient;
        gradient = rule == Rule::sgd_nesterov ? gradient + c.momentum * m[i] : m[i];
      }
      w[i] -= c.learning_rate * gradient;
    }
  }
}

template <Rule rule, typename T>
TROIKA_INLINE bool update(const UpdateBuffers& buffers, const Numbers<T>& numbers, Range elements) {
  alignas(64) T block[kBlock];
  const auto at = [](void* start, int64_t offset) {
    return start == nullptr ? nullptr : static_cast<T*>(start) + offset;
  };
  int bad = 0;
  for (int64_t begin = elements.begin; begin < elements.end; begin += kBlock) {
    const int64_t n = std::min(kBlock, elements.end - begin);
    bad |= take_mean<T>(buffers.gradients, begin, n, numbers.weight, block);
    if (buffers.mean != nullptr) std::copy_n(block, n, at(buffers.mean, begin));
    apply<rule, T>(numbers, block, n, at(buffers.weights, begin), at(buffers.moments[0], begin),
                   at(buffers.moments[1], begin));
  }
  return bad == 0;
}

// One body, compiled once per instruction set. Not target_clones: its resolvers run before a sanitizer is up.
#define TROIKA_KERNEL(NAME, TARGET)                                                           \
  template <Rule rule, typename T>                                                            \
  TARGET bool NAME(const UpdateBuffers& buffers, const Numbers<T>& numbers, Range elements) { \
    return update<rule, T>(buffers, numbers, elements);                                       \
  }
#if defined(__x86_64__)
TROIKA_KERNEL(update_avx512,
              __attribute__((target("avx512f,avx512dq,avx512vl,avx512bw,prefer-vector-width=512"))))
TROIKA_KERNEL(update_avx2, __attribute__((target("avx2"))))
#endif
TROIKA_KERNEL(update_default, )

template <Rule rule, typename T>
bool dispatch(const UpdateBuffers& buffers, const Numbers<T>& numbers, Range elements) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw")) {
    return update_avx512<rule, T>(buffers, numbers, elements);
  }
  if (__builtin_cpu_supports("avx2")) return update_avx2<rule, T>(buffers, numbers, elements);
#endif
  return update_default<rule, T>(buffers, numbers, elements);
}

Rule rule_of(const Optimizer& o) {
  switch (o.kind) {
    case Optimizer::Kind::sgd:
      if (o.momentum == 0) return Rule::sgd;
      return o.nesterov ? Rule::sgd_nesterov : Rule::sgd_momentum;
    case Optimizer::Kind::adam:
      return Rule::adam;
    case Optimizer::Kind::adamw:
      return Rule::adamw;
  }
  TROIKA_ASSERT(false, "an optimizer kind that has no rule");
}

template <typename T>
bool update_elements(const UpdateBuffers& buffers, const Optimizer& o, double weight, const UpdateRun& run) {
  const Numbers<T> numbers = numbers_of<T>(o, weight, run.optimizer_step);
  switch (rule_of(o)) {
    case Rule::sgd:
      return dispatch<Rule::sgd>(buffers, numbers, run.elements);
    case Rule::sgd_momentum:
      return dispatch<Rule::sgd_momentum>(buffers, numbers, run.elements);
    case Rule::sgd_nesterov:
      return dispatch<Rule::sgd_nesterov>(buffers, numbers, run.elements);
    case Rule::adam:
      return dispatch<Rule::adam>(buffers, numbers, run.elements);
    case Rule::adamw:
      return dispatch<Rule::adamw>(buffers, numbers, run.elements);
  }
  TROIKA_ASSERT(false, "a rule that has no kernel");
}

}  // namespace

std::vector<std::string> moment_names(const Optimizer& optimizer) {
  switch (rule_of(optimizer)) {
    case Rule::sgd:
      return {};
    case Rule::sgd_momentum:
    case Rule::sgd_nesterov:
      return {"momentum"};
    case Rule::adam:
    case Rule::adamw:
      return {"exp_avg", "exp_avg_sq"};
  }
  TROIKA_ASSERT(false, "a rule without moments");
}

std::vector<UpdateRun> update_runs(const FlatLayout& layout, std::span<const uint8_t> touched,
                                   std::span<const int64_t> optimizer_steps, const Optimizer& optimizer) {
  const bool counts = optimizer.kind != Optimizer::Kind::sgd;
  std::vector<UpdateRun> runs;
  for (size_t i = 0; i < layout.entries.size(); ++i) {
    if (touched[i] == 0) continue;
    const Range elements = layout.padded(i);
    const int64_t step = counts ? optimizer_steps[i] : 1;
    if (!runs.empty() && runs.back().elements.end == elements.begin && runs.back().optimizer_step == step) {
      runs.back().elements.end = elements.end;
    } else {
      runs.push_back({elements, step});
    }
  }
  return runs;
}

bool fused_update(const UpdateBuffers& buffers, const Optimizer& optimizer, double weight,
                  const UpdateRun& run) {
  return buffers.is_double ? update_elements<double>(buffers, optimizer, weight, run)
                           : update_elements<float>(buffers, optimizer, weight, run);
}

}  // namespace troika

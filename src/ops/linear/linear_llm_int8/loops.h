// Loops over columns of a row, for one instruction set: see host.cpp. No include guard: see
// host/instruction_sets.h.

namespace planq::host::PLANQ_LEVEL {

template <class C>
void scale_sums(const std::int32_t* sums, std::int64_t count, C scale, C* __restrict to) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = static_cast<C>(sums[i]) * scale;
}

template <class C>
void add_listed(C value, const std::int8_t* codes, std::int64_t count, C* __restrict sums) {
  for (std::int64_t i = 0; i < count; ++i)
    sums[i] = math::fused(value, static_cast<C>(codes[i]), sums[i]);
}

template <class C>
inline constexpr ListedLoops<C> kListedLoops = {scale_sums<C>, add_listed<C>};

}  // namespace planq::host::PLANQ_LEVEL

package org.msdc.encoder

/** One result of a search: a row of the vectors, and its cosine to the query. */
data class Hit(val row: Int, val cosine: Float)

/**
 * Vectors of [width] numbers, one after another in [values]; as a list, each element is a copy of its row. Keep
 * [values] to store an index, and make `Vectors(values, width)` of it again.
 *
 * @throws IllegalArgumentException [values] is not a whole number of rows.
 */
class Vectors(val values: FloatArray, val width: Int) : AbstractList<FloatArray>(), RandomAccess {
    init {
        require(width > 0 && values.size % width == 0) { "${values.size} numbers are no rows of $width" }
    }

    override val size: Int get() = values.size / width

    override fun get(index: Int): FloatArray {
        if (index !in 0 until size) throw IndexOutOfBoundsException("row $index of $size")
        return values.copyOfRange(index * width, (index + 1) * width)
    }

    /** The [k] rows with the largest cosine to [query], best first, equal ones by row. */
    @JvmOverloads
    fun nearest(query: FloatArray, k: Int = 10): List<Hit> {
        require(query.size == width) { "a query of ${query.size} numbers for rows of $width" }
        require(k >= 0) { "k is $k" }
        val rows = IntArray(minOf(k, size))
        val cosines = NativeCore.topK(query, values, width, rows)
        return rows.indices.map { Hit(rows[it], cosines[it]) }
    }

    companion object {
        /** The cosine of two vectors of one width; 0 where one of them is zero. */
        @JvmStatic
        fun cosine(a: FloatArray, b: FloatArray): Float {
            require(a.size == b.size) { "vectors of ${a.size} and ${b.size} numbers" }
            return NativeCore.cosine(a, b)
        }
    }
}

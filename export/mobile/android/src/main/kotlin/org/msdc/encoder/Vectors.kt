package org.msdc.encoder

/** One result of a search: a row of the vectors, and its cosine to the query. */
data class Hit(val row: Int, val cosine: Float)

/**
 * Vectors of [width] numbers as a list that rows are added to and removed from; each element is a copy of its row. Keep
 * [values] to store them, and make `Vectors(values, width)` of it again. Not for changes from several threads.
 *
 * @throws IllegalArgumentException [values] is not a whole number of rows, or a row has another width.
 */
class Vectors(values: FloatArray, val width: Int) : AbstractMutableList<FloatArray>(), RandomAccess {
    private var numbers = values

    init {
        require(width > 0 && values.size % width == 0) { "${values.size} numbers are no rows of $width" }
    }

    override var size: Int = values.size / width
        private set

    /** The numbers of all rows, one after another. */
    val values: FloatArray
        get() = if (numbers.size == size * width) numbers else numbers.copyOf(size * width)

    override fun get(index: Int): FloatArray {
        inside(index, size)
        return numbers.copyOfRange(index * width, (index + 1) * width)
    }

    override fun set(index: Int, element: FloatArray): FloatArray {
        val before = get(index)
        fits(element)
        element.copyInto(numbers, index * width)
        return before
    }

    override fun add(index: Int, element: FloatArray) {
        inside(index, size + 1)
        fits(element)
        if (numbers.size == size * width) numbers = numbers.copyOf(maxOf(8, 2 * size) * width)
        numbers.copyInto(numbers, (index + 1) * width, index * width, size * width)
        element.copyInto(numbers, index * width)
        size++
    }

    override fun removeAt(index: Int): FloatArray {
        val before = get(index)
        numbers.copyInto(numbers, index * width, (index + 1) * width, size * width)
        size--
        return before
    }

    /** The [k] rows with the largest cosine to [query], best first, equal ones by row. */
    @JvmOverloads
    fun nearest(query: FloatArray, k: Int = 10): List<Hit> {
        fits(query)
        require(k >= 0) { "k is $k" }
        val rows = IntArray(minOf(k, size))
        val cosines = core.topK(query, numbers, size, rows)
        return rows.indices.map { Hit(rows[it], cosines[it]) }
    }

    private fun fits(vector: FloatArray) = require(vector.size == width) { "${vector.size} numbers for rows of $width" }

    private fun inside(index: Int, end: Int) {
        if (index !in 0 until end) throw IndexOutOfBoundsException("row $index of $size")
    }

    companion object {
        /** The cosine of two vectors of one width; 0 where one of them is zero. */
        @JvmStatic
        fun cosine(a: FloatArray, b: FloatArray): Float {
            require(a.size == b.size) { "vectors of ${a.size} and ${b.size} numbers" }
            return core.cosine(a, b)
        }
    }
}
